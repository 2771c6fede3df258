// @azure/data-tables: entity group transactions, and how a failure names its operation (wire 7).

import assert from "node:assert/strict";
import { test } from "node:test";
import { RestError, TableTransaction } from "@azure/data-tables";
import { all, failure, freshTable, freshTableName, stored, tableClient } from "./clients.mjs";

const entity = (rowKey, properties = {}) => ({ partitionKey: "p", rowKey, ...properties });
const STALE = { etag: "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\"" };

async function contents(table) {
  return (await all(table.listEntities())).map(stored);
}

test("every kind of operation in one transaction", async (t) => {
  const table = await freshTable(t);
  for (const rowKey of ["deleted", "merged", "replaced", "upmerged", "upreplaced"]) {
    await table.createEntity(entity(rowKey, { kept: 1, changed: 1 }));
  }
  const answer = await table.submitTransaction([
    ["create", entity("created", { changed: 2 })],
    ["update", entity("merged", { changed: 2 }), "Merge"],
    ["update", entity("replaced", { changed: 2 }), "Replace"],
    ["upsert", entity("upmerged", { changed: 2 }), "Merge"],
    ["upsert", entity("upreplaced", { changed: 2 }), "Replace"],
    ["upsert", entity("upserted", { changed: 2 }), "Merge"],
    ["delete", entity("deleted")],
  ]);
  assert.equal(answer.status, 202);
  assert.deepEqual(answer.subResponses.map((each) => each.status), Array(7).fill(204));
  assert.equal(answer.getResponseForEntity("created").etag.trim(), (await table.getEntity("p", "created")).etag);
  assert.equal(answer.subResponses[1].etag.trim(), (await table.getEntity("p", "merged")).etag);
  assert.equal(answer.subResponses[6].etag, undefined);
  assert.deepEqual(await contents(table), [
    entity("created", { changed: 2 }),
    entity("merged", { kept: 1, changed: 2 }),
    entity("replaced", { changed: 2 }),
    entity("upmerged", { kept: 1, changed: 2 }),
    entity("upreplaced", { changed: 2 }),
    entity("upserted", { changed: 2 }),
  ]);
});

test("the TableTransaction builder gathers the same operations", async (t) => {
  const table = await freshTable(t);
  const gathered = new TableTransaction();
  gathered.createEntity(entity("a", { value: 1 }));
  gathered.upsertEntity(entity("b", { value: 1 }), "Replace");
  await table.submitTransaction(gathered.actions);
  const next = new TableTransaction([["update", entity("a", { value: 2 }), "Merge"]]);
  next.deleteEntity("p", "b");
  await table.submitTransaction(next.actions);
  assert.deepEqual(await contents(table), [entity("a", { value: 2 })]);
});

test("a key with braces does not look like a failure (wire 12.2)", async (t) => {
  const table = await freshTable(t);
  const answer = await table.submitTransaction([["create", entity("{a}")], ["create", entity("b")]]);
  assert.equal(answer.subResponses.length, 2);
});

test("an update under the current ETag is done", async (t) => {
  const table = await freshTable(t);
  const { etag } = await table.createEntity(entity("a", { number: 1 }));
  await table.submitTransaction([["update", entity("a", { number: 2 }), "Merge", { etag }]]);
  assert.deepEqual(await contents(table), [entity("a", { number: 2 })]);
});

test("a hundred operations are done", async (t) => {
  const table = await freshTable(t);
  const actions = Array.from({ length: 100 }, (_, number) => ["create", entity(String(number).padStart(3, "0"))]);
  assert.equal((await table.submitTransaction(actions)).subResponses.length, 100);
  assert.equal((await contents(table)).length, 100);
});

test("two partitions are refused by the SDK", async (t) => {
  const table = await freshTable(t);
  const actions = [["create", entity("a")], ["create", { partitionKey: "q", rowKey: "b" }]];
  await assert.rejects(table.submitTransaction(actions), /same partitionKey/);
});

test("a failure names its operation, and nothing is done", async (t) => {
  const table = await freshTable(t);
  await table.createEntity(entity("old", { number: 1 }));
  const many = Array.from({ length: 101 }, (_, number) => ["create", entity(`n${number}`)]);
  // The operations; the text the message begins with; status and code.
  const cases = [
    [[["create", entity("a")], ["create", entity("b")], ["create", entity("old")]], "2:", 409, "EntityAlreadyExists"],
    [[["create", entity("a")], ["update", entity("missing"), "Merge"]], "1:", 404, "ResourceNotFound"],
    [[["create", entity("a")], ["update", entity("old", { number: 2 }), "Merge", STALE]], "1:", 412, "UpdateConditionNotSatisfied"],
    [[["upsert", entity("a")], ["upsert", entity("a")]], "1:", 400, "InvalidDuplicateRow"],
    [[["create", entity("a")], ["create", entity("x/y")]], "1:", 400, "OutOfRangeInput"],
    [many, "99:", 400, "InvalidInput"],
  ];
  for (const [actions, prefix, status, code] of cases) {
    await t.test(`${code} at ${prefix}`, async () => {
      await assert.rejects(table.submitTransaction(actions), (error) => {
        assert.ok(error instanceof RestError);
        assert.ok(error.message.startsWith(prefix), error.message);
        return failure(status, code)(error);
      });
      assert.deepEqual(await contents(table), [entity("old", { number: 1 })]);
    });
  }
});

test("a transaction on a missing table is not found", async () => {
  const table = tableClient(freshTableName());
  await assert.rejects(table.submitTransaction([["create", entity("a")]]), failure(404, "TableNotFound"));
});
