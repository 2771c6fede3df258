// @azure/data-tables: the calls whose operations Tablestone does not have yet are refused by name.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import { freshTable, serviceClient } from "./clients.mjs";

const SERVICE_CALLS = {
  getProperties: (service) => service.getProperties(),
  setProperties: (service) => service.setProperties({ cors: [] }),
  getStatistics: (service) => service.getStatistics(),
};
const TABLE_CALLS = {
  getAccessPolicy: (table) => table.getAccessPolicy(),
  setAccessPolicy: (table) => table.setAccessPolicy([]),
};

// The SDK reads these answers as XML and finds no code in a JSON one: the body itself is looked at.
function refusedByName(error) {
  assert.equal(error.statusCode, 501);
  assert.match(error.response.bodyAsText, /NotImplemented/);
  return true;
}

test("a call on the service is refused", async (t) => {
  for (const [name, call] of Object.entries(SERVICE_CALLS)) {
    await t.test(name, () => assert.rejects(call(serviceClient()), refusedByName));
  }
});

test("a call on the table is refused", async (t) => {
  const table = await freshTable(t);
  for (const [name, call] of Object.entries(TABLE_CALLS)) {
    await t.test(name, () => assert.rejects(call(table), refusedByName));
  }
});

test("no public call is forgotten: a new one fails here until it has a test", () => {
  const elsewhere = new Set([
    "createTable", "deleteTable", "listTables",
    "createEntity", "deleteEntity", "getEntity", "listEntities", "submitTransaction", "updateEntity", "upsertEntity",
  ]);
  // Methods that TypeScript calls private are ordinary ones to JavaScript.
  const ownToTheSdk = new Set(["constructor", "listTablesAll", "listTablesPage", "_listTables", "listEntitiesAll", "listEntitiesPage", "_listEntities"]);
  for (const [kind, here] of [[TableServiceClient, SERVICE_CALLS], [TableClient, TABLE_CALLS]]) {
    const known = (name) => name in here || elsewhere.has(name) || ownToTheSdk.has(name);
    assert.deepEqual(Object.getOwnPropertyNames(kind.prototype).filter((name) => !known(name)), []);
  }
});
