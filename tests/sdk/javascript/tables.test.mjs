// @azure/data-tables, the service client: tables created, listed, queried and deleted; their names.

import assert from "node:assert/strict";
import { test } from "node:test";
import { odata, TableClient, TableServiceClient } from "@azure/data-tables";
import { all, connectionString, endpoint, failure, freshTable, freshTableName, options, serviceClient, tableClient } from "./clients.mjs";

async function names(service = serviceClient()) {
  return (await all(service.listTables())).map((table) => table.name);
}

test("a table is created, listed and deleted", async () => {
  const service = serviceClient();
  const name = freshTableName();
  await service.createTable(name);
  assert.ok((await names(service)).includes(name));
  await service.deleteTable(name);
  assert.ok(!(await names(service)).includes(name));
});

test("the table client creates and deletes its table", async () => {
  const table = tableClient(freshTableName());
  await table.createTable();
  assert.ok((await names()).includes(table.tableName));
  await table.deleteTable();
  assert.ok(!(await names()).includes(table.tableName));
});

test("creating a table that exists is silent: the SDK knows TableAlreadyExists (wire 12.4)", async (t) => {
  const table = await freshTable(t);
  await table.createTable();
  await serviceClient().createTable(table.tableName.toUpperCase());
  assert.equal((await names()).filter((name) => name.toLowerCase() === table.tableName).length, 1);
});

test("deleting a table that is not there is silent", async () => {
  await serviceClient().deleteTable(freshTableName());
});

test("a deleted table has no entities, and created again shows nothing old", async (t) => {
  const table = await freshTable(t);
  await table.createEntity({ partitionKey: "p", rowKey: "r" });
  await table.deleteTable();
  await assert.rejects(table.getEntity("p", "r"), failure(404, "TableNotFound"));
  await assert.rejects(all(table.listEntities()), failure(404, "TableNotFound"));
  await assert.rejects(table.createEntity({ partitionKey: "p", rowKey: "r" }), failure(404, "TableNotFound"));
  await table.createTable();
  assert.deepEqual(await all(table.listEntities()), []);
});

test("tables come in pages, and a token goes on in another client", async (t) => {
  const prefix = freshTableName();
  const service = serviceClient();
  const created = [0, 1, 2, 3, 4].map((number) => prefix + number);
  for (const name of created) await service.createTable(name);
  t.after(() => Promise.all(created.map((name) => service.deleteTable(name))));
  const queryOptions = { filter: odata`TableName ge ${prefix} and TableName lt ${prefix + "{"}` };
  const pages = service.listTables({ queryOptions }).byPage({ maxPageSize: 2 });
  const first = (await pages.next()).value;
  assert.deepEqual(first.map((table) => table.name), created.slice(0, 2));
  const { continuationToken } = first;
  const rest = await all(serviceClient().listTables({ queryOptions }).byPage({ maxPageSize: 2, continuationToken }));
  assert.deepEqual(rest.map((page) => page.map((table) => table.name)), [created.slice(2, 4), created.slice(4)]);
});

test("bad table names are refused (wire 1.4)", async (t) => {
  const cases = [
    ["ab", "OutOfRangeInput"],
    ["a".repeat(64), "OutOfRangeInput"],
    ["1table", "InvalidResourceName"],
    ["with-dash", "InvalidResourceName"],
    ["tables", "InvalidInput"],
  ];
  for (const [name, code] of cases) {
    await t.test(name, () => assert.rejects(serviceClient().createTable(name), failure(400, code)));
  }
});

test("a connection string reaches the account", async (t) => {
  const table = await freshTable(t);
  const service = TableServiceClient.fromConnectionString(connectionString, options);
  assert.ok((await names(service)).includes(table.tableName));
  const same = TableClient.fromConnectionString(connectionString, table.tableName, options);
  await same.createEntity({ partitionKey: "p", rowKey: "r" });
  assert.equal((await table.getEntity("p", "r")).rowKey, "r");
  assert.equal(new URL(service.url).host, new URL(endpoint).host);
});

test("the development shorthand means this account at port 10002 (wire 1.1)", () => {
  const service = TableServiceClient.fromConnectionString("UseDevelopmentStorage=true", options);
  assert.equal(service.url, "http://127.0.0.1:10002/devstoreaccount1");
});
