// @azure/data-tables: stored access policies, service properties and replication statistics.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import { freshTable, freshTableName, serviceClient, tableClient } from "./clients.mjs";

const START = new Date("2024-05-06T07:08:09.000Z");
const EXPIRY = new Date("2024-05-07T07:08:09.000Z");

// The SDK reads these answers as XML and puts no code into the error: the body itself is looked at.
function xmlFailure(statusCode, code) {
  return (error) => {
    assert.equal(error.statusCode, statusCode);
    assert.match(error.response.bodyAsText, new RegExp(`<m:code>${code}</m:code>`));
    return true;
  };
}

async function policies(table) {
  return [...(await table.getAccessPolicy())];
}

test("policies are given back, replaced and cleared", async (t) => {
  const table = await freshTable(t);
  assert.deepEqual(await policies(table), []);
  await table.setAccessPolicy([
    { id: "full", accessPolicy: { start: START, expiry: EXPIRY, permission: "raud" } },
    { id: "partial", accessPolicy: { permission: "r" } },
  ]);
  const [full, partial] = await policies(table);
  assert.equal(full.id, "full");
  assert.deepEqual({ ...full.accessPolicy }, { start: START, expiry: EXPIRY, permission: "raud" });
  assert.equal(partial.accessPolicy.permission, "r");
  await table.setAccessPolicy([{ id: "other", accessPolicy: {} }]);
  assert.deepEqual((await policies(table)).map(({ id }) => id), ["other"]);
  await table.setAccessPolicy([]);
  assert.deepEqual(await policies(table), []);
});

test("six policies are too many", async (t) => {
  const table = await freshTable(t);
  const six = Array.from({ length: 6 }, (_, number) => ({ id: `id${number}`, accessPolicy: { permission: "r" } }));
  await assert.rejects(table.setAccessPolicy(six), xmlFailure(400, "InvalidXmlDocument"));
  assert.deepEqual(await policies(table), []);
});

test("policies of no table", async () => {
  await assert.rejects(tableClient(freshTableName()).getAccessPolicy(), xmlFailure(404, "TableNotFound"));
});

test("service properties are given back, and what is not named is kept", async () => {
  const service = serviceClient();
  const off = { version: "1.0", enabled: false, retentionPolicy: { enabled: false } };
  const rule = {
    allowedOrigins: "http://www.example.com,http://localhost",
    allowedMethods: "GET,PUT",
    allowedHeaders: "x-ms-date,x-ms-meta-*",
    exposedHeaders: "x-ms-request-id",
    maxAgeInSeconds: 500,
  };
  try {
    await service.setProperties({ cors: [rule] });
    await service.setProperties({ hourMetrics: { ...off, enabled: true, includeAPIs: true } });
    const found = await service.getProperties();
    assert.deepEqual(found.cors.map((given) => ({ ...given })), [rule]);
    assert.equal(found.hourMetrics.includeAPIs, true);
    assert.equal(found.logging.retentionPolicy.enabled, false);
  } finally {
    await service.setProperties({ cors: [], hourMetrics: off });
  }
  assert.deepEqual((await service.getProperties()).cors ?? [], []);
});

test("replication is live", async () => {
  const { geoReplication } = await serviceClient().getStatistics();
  assert.equal(geoReplication.status, "live");
  assert.ok(Math.abs(geoReplication.lastSyncTime - Date.now()) < 300_000);
});

test("no public call is forgotten: a new one fails here until it has a test", () => {
  const tested = new Set([
    "createTable", "deleteTable", "listTables", "getProperties", "setProperties", "getStatistics",
    "createEntity", "deleteEntity", "getEntity", "listEntities", "submitTransaction", "updateEntity", "upsertEntity",
    "getAccessPolicy", "setAccessPolicy",
  ]);
  // Methods that TypeScript calls private are ordinary ones to JavaScript.
  const ownToTheSdk = new Set(["constructor", "listTablesAll", "listTablesPage", "_listTables", "listEntitiesAll", "listEntitiesPage", "_listEntities"]);
  for (const kind of [TableServiceClient, TableClient]) {
    const known = (name) => tested.has(name) || ownToTheSdk.has(name);
    assert.deepEqual(Object.getOwnPropertyNames(kind.prototype).filter((name) => !known(name)), []);
  }
});
