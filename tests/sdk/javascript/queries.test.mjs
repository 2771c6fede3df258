// @azure/data-tables: queries with the odata helper, projections, pages and continuation tokens.

import assert from "node:assert/strict";
import { test } from "node:test";
import { odata } from "@azure/data-tables";
import { all, failure, freshTable, stored, tableClient } from "./clients.mjs";

const GUID = "c9da6455-213d-42c9-9a79-3e9149a57833";
const NOON = new Date("2026-06-01T12:00:00.123Z");

// Three entities a, b, c, in whose every property a < b < c; c lacks one of them.
const ENTITIES = [
  { partitionKey: "p", rowKey: "a", text: "apple", int32: -1, int64: 3000000000n, double: 0.5, flag: false, when: new Date(NOON - 1), guid: { type: "Guid", value: "00000000-0000-0000-0000-000000000001" }, data: new Uint8Array([0]), sometimes: 1 },
  { partitionKey: "p", rowKey: "b", text: "it's", int32: 42, int64: 9007199254740993n, double: 1.5, flag: true, when: NOON, guid: { type: "Guid", value: GUID }, data: new Uint8Array([1, 255]), sometimes: 2 },
  { partitionKey: "q", rowKey: "c", text: "été", int32: 2147483647, int64: 9223372036854775807n, double: 1e300, flag: true, when: new Date(NOON.getTime() + 1), guid: { type: "Guid", value: "ffffffff-ffff-ffff-ffff-ffffffffffff" }, data: new Uint8Array([1, 255, 0]) },
];

async function filled(t) {
  const table = await freshTable(t);
  for (const entity of ENTITIES) await table.createEntity(entity);
  return table;
}

async function rowsFound(table, filter) {
  return (await all(table.listEntities({ queryOptions: { filter } }))).map((entity) => entity.rowKey).join("");
}

test("a filter finds its rows (wire 6)", async (t) => {
  const table = await filled(t);
  const cases = [
    [odata`text eq ${"it's"}`, "b"],
    [odata`text eq '${"it's"}'`, "b"],
    [odata`int32 lt ${42}`, "a"],
    [odata`int64 eq ${9007199254740993n}` + "L", "b"],
    [odata`int64 gt ${12345678901n}` + "L", "bc"],
    [odata`double ge ${1.5}`, "bc"],
    [odata`flag eq ${true}`, "bc"],
    [odata`when eq ${NOON}`, "b"],
    [odata`when gt ${NOON}`, "c"],
    ["guid eq guid'" + GUID + "'", "b"],
    ["data eq X'01ff'", "b"],
    ["data gt binary'01ff'", "c"],
    [odata`PartitionKey eq ${"p"} and RowKey ge ${"b"}`, "b"],
    [odata`PartitionKey eq 'q' or int32 eq ${-1}`, "ac"],
    ["not (sometimes eq 2)", "ac"],
    ["sometimes ne 2", "a"],
    ["flag and not (RowKey eq 'b')", "c"],
    ["'q' eq PartitionKey", "c"],
  ];
  for (const [filter, rows] of cases) {
    await t.test(filter, async () => assert.equal(await rowsFound(table, filter), rows));
  }
});

test("a filter that cannot be evaluated is refused", async (t) => {
  const table = await filled(t);
  await assert.rejects(rowsFound(table, "text eq"), failure(400, "InvalidInput"));
  await assert.rejects(rowsFound(table, "aaa bbb ccc"), failure(400, "InvalidInput"));
  await assert.rejects(rowsFound(table, odata`int64 eq ${9007199254740993n}`), failure(400, "InvalidInput")); // without L (wire 12.4)
  await assert.rejects(rowsFound(table, "1 eq 2"), failure(501, "NotImplemented"));
});

test("select narrows a list, null for an absent property (wire 5.6)", async (t) => {
  const table = await filled(t);
  const listed = await all(table.listEntities({ queryOptions: { select: ["rowKey", "sometimes"] } }));
  assert.deepEqual(listed.map(stored), [
    { rowKey: "a", sometimes: 1 },
    { rowKey: "b", sometimes: 2 },
    { rowKey: "c", sometimes: null },
  ]);
});

async function filledWithRows(t, count) {
  const table = await freshTable(t);
  const rows = Array.from({ length: count }, (_, number) => String(number).padStart(5, "0"));
  for (let start = 0; start < count; start += 100) {
    const part = rows.slice(start, start + 100);
    await table.submitTransaction(part.map((rowKey) => ["create", { partitionKey: "p", rowKey }]));
  }
  return [table, rows];
}

const rowsOf = (page) => page.map((entity) => entity.rowKey);

test("pages have the asked-for size and lose nothing", async (t) => {
  const [table, rows] = await filledWithRows(t, 7);
  const pages = await all(table.listEntities().byPage({ maxPageSize: 3 }));
  assert.deepEqual(pages.map(rowsOf), [rows.slice(0, 3), rows.slice(3, 6), rows.slice(6)]);
});

test("a page ends at a thousand entities", async (t) => {
  const [table, rows] = await filledWithRows(t, 1003);
  const pages = await all(table.listEntities().byPage());
  assert.deepEqual(pages.map(rowsOf), [rows.slice(0, 1000), rows.slice(1000)]);
  assert.deepEqual(rowsOf(await all(table.listEntities())), rows);
});

test("a token is continued by another client", async (t) => {
  const [table, rows] = await filledWithRows(t, 5);
  const first = (await table.listEntities().byPage({ maxPageSize: 2 }).next()).value;
  assert.deepEqual(rowsOf(first), rows.slice(0, 2));
  const { continuationToken } = first;
  const another = tableClient(table.tableName);
  const rest = await all(another.listEntities().byPage({ maxPageSize: 2, continuationToken }));
  assert.deepEqual(rest.map(rowsOf), [rows.slice(2, 4), rows.slice(4)]);
});

test("a page size outside its bounds is refused (wire 6.7)", async (t) => {
  const table = await filled(t);
  for (const maxPageSize of [-1, 1001]) {
    await assert.rejects(table.listEntities().byPage({ maxPageSize }).next(), failure(400, "InvalidInput"));
  }
});
