// The tests of the orders, with faults, a snapshot and a clock over HTTP.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { AzureNamedKeyCredential, AzureSASCredential, TableClient, generateTableSas } from "@azure/data-tables";
import { Orders } from "./orders.mjs";
import { Tablestone } from "./tablestone.mjs";

const ORDER = { PartitionKey: "anna", RowKey: "1", total: 5, status: "new" };
const PLAIN_HTTP = { allowInsecureConnection: true };

let server, account, table, orders;

before(async () => {
  server = await Tablestone.start();
});

after(() => server.stop());

beforeEach(async () => {
  account = await server.ask("POST", "/accounts");
  table = TableClient.fromConnectionString(account.connection_string, "Orders", PLAIN_HTTP);
  await table.createTable();
  orders = new Orders(table);
});

afterEach(async () => {
  await server.ask("DELETE", "/faults");
  await server.ask("POST", "/clock/reset");
});

async function statuses(operation) {
  const { requests } = await server.ask("GET", "/requests");
  return requests
    .filter((each) => each.account === account.name && each.operation === operation)
    .map((each) => each.status);
}

const dump = () => server.ask("GET", `/dump?account=${account.name}`);

test("an order is placed though the server is busy", async () => {
  await server.ask("POST", "/faults", { operation: "InsertEntity", count: 2, error: "ServerBusy", retry_after: 0 });
  await orders.place("anna", "1", 5);
  assert.deepEqual(await statuses("InsertEntity"), [503, 503, 204]);
});

test("an order whose answer was lost is stored once", async () => {
  await server.ask("POST", "/faults", { operation: "InsertEntity", count: 1, reset: "after" });
  await orders.place("anna", "1", 5);
  assert.deepEqual(await dump(), { Orders: [ORDER] });
});

test("a payment that is overtaken is made again", async () => {
  await server.ask("POST", `/seed?account=${account.name}`, { Orders: [ORDER] });
  await server.ask("POST", "/faults", { conflict: true, count: 1 });
  await orders.pay("anna", "1");
  assert.deepEqual(await statuses("MergeEntity"), [412, 204]);
  assert.equal((await table.getEntity("anna", "1")).status, "paid");
});

test("a snapshot brings everything back", async () => {
  await orders.place("anna", "1", 5);
  const { id } = await server.ask("POST", "/snapshots");
  await orders.pay("anna", "1");
  await server.ask("POST", `/snapshots/${id}/restore`);
  assert.deepEqual(await dump(), { Orders: [ORDER] });
});

test("a signature expires", async () => {
  const signature = generateTableSas("Orders", new AzureNamedKeyCredential(account.name, account.key), {
    expiresOn: new Date(Date.now() + 3_600_000),
    permissions: { query: true },
  });
  const guest = new TableClient(account.endpoint, "Orders", new AzureSASCredential(signature), PLAIN_HTTP);
  assert.deepEqual(await new Orders(guest).of("anna"), []);
  await server.ask("POST", "/clock/advance", { hours: 2 });
  await assert.rejects(new Orders(guest).of("anna"), { statusCode: 403 });
});

test("the orders of a customer cost one request", async () => {
  const { count } = await server.ask("GET", "/requests");
  await orders.of("anna");
  const limits = { since: count, scans: 0, requests: 1, account: account.name };
  assert.deepEqual(await server.ask("POST", "/cost", limits), { complaints: [] });
});
