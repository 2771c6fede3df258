// @azure/data-tables: shared access signatures that the SDK makes, stored access policies, credentials updated in use.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AzureNamedKeyCredential,
  AzureSASCredential,
  TableClient,
  TableServiceClient,
  generateAccountSas,
  generateTableSas,
} from "@azure/data-tables";
import { accountName, all, credential, endpoint, failure, freshTable, freshTableName, options, stored } from "./clients.mjs";

const SOON = new Date(Date.now() + 3_600_000);
const START = new Date("2026-01-02T03:04:05Z");
const END = new Date("2099-01-02T03:04:05Z");
const ENTITIES = [["EWR", "1"], ["JFK", "1"], ["JFK", "2"], ["JFK", "3"], ["LGA", "1"]];
const EVERYTHING = { query: true, write: true, delete: true, list: true, add: true, update: true };

const entity = ([partitionKey, rowKey], properties = {}) => ({ partitionKey, rowKey, ...properties });

function accountToken(given = {}) {
  return generateAccountSas(credential(), {
    expiresOn: SOON,
    permissions: EVERYTHING,
    resourceTypes: "sco",
    services: { table: true },
    ...given,
  });
}

function tableToken(table, given = {}) {
  return generateTableSas(table.tableName, credential(), { expiresOn: SOON, permissions: { query: true }, ...given });
}

function tableWith(token, name) {
  return new TableClient(endpoint, name, new AzureSASCredential(token), options);
}

async function filledTable(t) {
  const table = await freshTable(t);
  for (const keys of ENTITIES) await table.createEntity(entity(keys));
  return table;
}

async function keysIn(table) {
  return (await all(table.listEntities())).map(({ partitionKey, rowKey }) => [partitionKey, rowKey]);
}

test("a signature of the account does all that it permits", async () => {
  const service = new TableServiceClient(endpoint, new AzureSASCredential(accountToken()), options);
  const name = freshTableName();
  await service.createTable(name);
  assert.ok((await all(service.listTables())).some((table) => table.name === name));
  const table = tableWith(accountToken(), name);
  await table.createEntity(entity(["p", "it's +%20"]));
  await table.upsertEntity(entity(["p", "it's +%20"], { number: 2 }));
  await table.submitTransaction([["create", entity(["p", "s"])], ["delete", entity(["p", "it's +%20"])]]);
  const found = await all(table.listEntities({ queryOptions: { filter: "PartitionKey eq 'p' and RowKey gt 'a'" } }));
  assert.deepEqual(found.map(stored), [entity(["p", "s"])]);
  await service.deleteTable(name);
});

test("a signature of the account in a connection string", async (t) => {
  const table = await filledTable(t);
  const text = `TableEndpoint=${endpoint};SharedAccessSignature=${accountToken()}`;
  assert.deepEqual(await keysIn(TableClient.fromConnectionString(text, table.tableName, options)), ENTITIES);
  const service = TableServiceClient.fromConnectionString(text, options);
  assert.ok((await all(service.listTables())).some((each) => each.name === table.tableName));
});

test("a signature of the account in the endpoint", async (t) => {
  const table = await filledTable(t);
  const same = new TableClient(`${endpoint}?${accountToken()}`, table.tableName, options);
  assert.deepEqual(await keysIn(same), ENTITIES);
});

test("a signature of the account needs the letter and the resource", async (t) => {
  const table = await freshTable(t);
  const reader = tableWith(accountToken({ permissions: { query: true, list: true } }), table.tableName);
  await assert.rejects(reader.createEntity(entity(["p", "r"])), failure(403, "AuthorizationPermissionMismatch"));
  const tablesOnly = tableWith(accountToken({ resourceTypes: "c" }), table.tableName);
  await assert.rejects(tablesOnly.createEntity(entity(["p", "r"])), failure(403, "AuthorizationResourceTypeMismatch"));
  assert.deepEqual(await keysIn(reader), []);
});

test("a signature of a table does what it permits, there alone", async (t) => {
  const table = await filledTable(t);
  const token = tableToken(table, { permissions: { query: true, add: true } });
  const limited = tableWith(token, table.tableName);
  assert.deepEqual(await keysIn(limited), ENTITIES);
  await limited.createEntity(entity(["JFK", "4"]));
  await limited.submitTransaction([["create", entity(["JFK", "5"])]]);
  assert.deepEqual(stored(await limited.getEntity("JFK", "5")), entity(["JFK", "5"]));
  await assert.rejects(limited.deleteEntity("JFK", "4"), failure(403, "AuthorizationPermissionMismatch"));
  await assert.rejects(limited.upsertEntity(entity(["JFK", "4"])), failure(403, "AuthorizationPermissionMismatch"));
  const transaction = limited.submitTransaction([["create", entity(["JFK", "6"])], ["delete", entity(["JFK", "1"])]]);
  await assert.rejects(transaction, (error) => error.statusCode === 403);
  await assert.rejects(limited.deleteTable(), failure(403, "AuthorizationFailure"));
  const other = await freshTable(t);
  await assert.rejects(keysIn(tableWith(token, other.tableName)), failure(403, "AuthenticationFailed"));
  assert.equal((await keysIn(table)).length, ENTITIES.length + 2);
});

test("a range of keys: what is outside is not there, and not written (auth 3.6)", async (t) => {
  const table = await filledTable(t);
  const permissions = { query: true, add: true, update: true, delete: true };
  const cases = [
    [{ startPartitionKey: "JFK", endPartitionKey: "JFK" }, ENTITIES.slice(1, 4)],
    [{ startPartitionKey: "EWR", startRowKey: "2", endPartitionKey: "JFK", endRowKey: "1" }, ENTITIES.slice(1, 2)],
    [{ startPartitionKey: "a +b%20'ü" }, []],
  ];
  for (const [range, inside] of cases) {
    await t.test(JSON.stringify(range), async () => {
      const limited = tableWith(tableToken(table, { permissions, ...range }), table.tableName);
      assert.deepEqual(await keysIn(limited), inside);
      for (const keys of ENTITIES) {
        if (inside.includes(keys)) {
          await limited.upsertEntity(entity(keys, { seen: true }));
          await limited.submitTransaction([["upsert", entity(keys)]]);
        } else {
          await assert.rejects(limited.getEntity(...keys), failure(404, "ResourceNotFound"));
          await assert.rejects(limited.upsertEntity(entity(keys)), failure(403, "AuthorizationFailure"));
          await assert.rejects(limited.submitTransaction([["delete", entity(keys)]]), (error) => error.statusCode === 403);
        }
      }
    });
  }
  assert.deepEqual(await keysIn(table), ENTITIES);
});

test("conditions of time, address and protocol", async (t) => {
  const table = await freshTable(t);
  const cases = [
    [{ expiresOn: START }, "AuthenticationFailed"],
    [{ startsOn: new Date(END - 1000), expiresOn: END }, "AuthenticationFailed"],
    [{ ipRange: { start: "10.0.0.1" } }, "AuthorizationSourceIPMismatch"],
    [{ protocol: "https" }, "AuthorizationProtocolMismatch"],
    [{ ipRange: { start: "127.0.0.0", end: "127.0.0.9" }, protocol: "https,http" }, null],
  ];
  for (const [given, code] of cases) {
    for (const token of [accountToken(given), tableToken(table, given)]) {
      const listing = keysIn(tableWith(token, table.tableName));
      if (code === null) assert.deepEqual(await listing, []);
      else await assert.rejects(listing, failure(403, code));
    }
  }
});

test("a signature updated in use", async (t) => {
  const table = await freshTable(t);
  const used = new AzureSASCredential(tableToken(table));
  const client = new TableClient(endpoint, table.tableName, used, options);
  await assert.rejects(client.createEntity(entity(["p", "r"])), failure(403, "AuthorizationPermissionMismatch"));
  used.update(tableToken(table, { permissions: { query: true, add: true } }));
  await client.createEntity(entity(["p", "r"]));
  used.update(tableToken(table, { expiresOn: START }));
  await assert.rejects(client.getEntity("p", "r"), failure(403, "AuthenticationFailed"));
  used.update(accountToken());
  assert.deepEqual(await keysIn(client), [["p", "r"]]);
});

test("a key updated in use", async (t) => {
  const table = await freshTable(t);
  const used = credential();
  const client = new TableClient(endpoint, table.tableName, used, options);
  await client.createEntity(entity(["p", "r"]));
  used.update(accountName, Buffer.from("not the key").toString("base64"));
  await assert.rejects(client.getEntity("p", "r"), failure(403, "AuthenticationFailed"));
  used.update(accountName, credential().key);
  assert.deepEqual(await keysIn(client), [["p", "r"]]);
  assert.ok(used instanceof AzureNamedKeyCredential);
});

test("a policy acts on the very next request", async (t) => {
  const table = await filledTable(t);
  const reader = tableWith(
    generateTableSas(table.tableName, credential(), { identifier: "readers", permissions: undefined, expiresOn: undefined }),
    table.tableName,
  );
  const set = (accessPolicy) => table.setAccessPolicy([{ id: "readers", accessPolicy }]);
  await assert.rejects(keysIn(reader), failure(403, "AuthenticationFailed"));
  await set({ permission: "r", expiry: END });
  assert.deepEqual(await keysIn(reader), ENTITIES);
  await set({ permission: "a", expiry: END });
  await assert.rejects(keysIn(reader), failure(403, "AuthorizationPermissionMismatch"));
  await set({ permission: "r", start: START, expiry: END });
  assert.deepEqual(await keysIn(reader), ENTITIES);
  await table.setAccessPolicy([]);
  await assert.rejects(keysIn(reader), failure(403, "AuthenticationFailed"));
});
