// @azure/data-tables, the table client: one entity through all its operations; ETags; keys; error classes.

import assert from "node:assert/strict";
import { test } from "node:test";
import { AzureNamedKeyCredential, RestError, TableClient, TableServiceClient } from "@azure/data-tables";
import { accountKey, accountName, all, endpoint, failure, freshTable, options, stored } from "./clients.mjs";

const entity = (properties = {}) => ({ partitionKey: "p", rowKey: "r", ...properties });
const STALE_ETAG = "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\"";

test("an inserted entity is read back with its ETag", async (t) => {
  const table = await freshTable(t);
  const answer = await table.createEntity(entity({ name: "x", age: 3 }));
  assert.equal(answer.preferenceApplied, "return-no-content");
  const read = await table.getEntity("p", "r");
  assert.deepEqual(stored(read), entity({ name: "x", age: 3 }));
  assert.equal(read.etag, answer.etag);
  assert.equal(read.etag, `W/"datetime'${encodeURIComponent(read.timestamp)}'"`); // wire 0.2 rule 1
});

test("inserting an entity that exists is refused", async (t) => {
  const table = await freshTable(t);
  await table.createEntity(entity({ name: "old" }));
  await assert.rejects(table.createEntity(entity({ name: "new" })), (error) => {
    assert.ok(error instanceof RestError);
    return failure(409, "EntityAlreadyExists")(error);
  });
  assert.equal((await table.getEntity("p", "r")).name, "old");
});

for (const mode of ["Merge", "Replace"]) {
  const kept = mode === "Merge" ? { kept: 1 } : {};

  test("update writes what it is given: " + mode, async (t) => {
    const table = await freshTable(t);
    await assert.rejects(table.updateEntity(entity({ a: 1 }), mode), failure(404, "ResourceNotFound"));
    await table.createEntity(entity({ kept: 1, changed: 1 }));
    await table.updateEntity(entity({ changed: 2, added: 3 }), mode);
    assert.deepEqual(stored(await table.getEntity("p", "r")), entity({ ...kept, changed: 2, added: 3 }));
  });

  test("upsert inserts and then writes: " + mode, async (t) => {
    const table = await freshTable(t);
    const first = await table.upsertEntity(entity({ kept: 1, changed: 1 }), mode);
    const second = await table.upsertEntity(entity({ changed: 2 }), mode);
    const read = await table.getEntity("p", "r");
    assert.deepEqual(stored(read), entity({ ...kept, changed: 2 }));
    assert.equal(read.etag, second.etag);
    assert.notEqual(first.etag, second.etag);
  });

  test("an update under an older ETag is refused: " + mode, async (t) => {
    const table = await freshTable(t);
    const { etag: first } = await table.createEntity(entity({ number: 1 }));
    const { etag: second } = await table.updateEntity(entity({ number: 2 }));
    for (const etag of [first, STALE_ETAG]) {
      const update = table.updateEntity(entity({ number: 3 }), mode, { etag });
      await assert.rejects(update, failure(412, "UpdateConditionNotSatisfied"));
    }
    await table.updateEntity(entity({ number: 4 }), mode, { etag: second });
    assert.equal((await table.getEntity("p", "r")).number, 4);
  });
}

test("an entity that was read is written back as it is: its ETag and Timestamp are no properties", async (t) => {
  const table = await freshTable(t);
  await table.createEntity(entity({ text: "x", big: 5n, when: new Date("2026-06-01T12:00:00.123Z") }));
  const read = await table.getEntity("p", "r");
  await table.updateEntity(read, "Replace", { etag: read.etag });
  const again = await table.getEntity("p", "r");
  assert.deepEqual(stored(again), stored(read));
  assert.notEqual(again.etag, read.etag);
});

test("a filter decides whether an entity is read", async (t) => {
  const table = await freshTable(t);
  await table.createEntity(entity({ age: 3, name: "it's" }));
  const read = (filter, select) => table.getEntity("p", "r", { queryOptions: { filter, select } });
  assert.equal((await read("age eq 3 and name eq 'it''s'")).name, "it's");
  assert.deepEqual(stored(await read("age eq 3", ["name"])), { name: "it's" });
  await assert.rejects(read("age eq 4"), failure(404, "ResourceNotFound"));
  await assert.rejects(read("age is 3"), failure(400, "InvalidInput"));
});

test("delete, with and without a condition", async (t) => {
  const table = await freshTable(t);
  const { etag } = await table.createEntity(entity());
  await assert.rejects(table.deleteEntity("p", "r", { etag: STALE_ETAG }), failure(412, "UpdateConditionNotSatisfied"));
  await table.deleteEntity("p", "r", { etag });
  await assert.rejects(table.getEntity("p", "r"), failure(404, "ResourceNotFound"));
  await assert.rejects(table.deleteEntity("p", "r"), failure(404, "ResourceNotFound"));
  await table.createEntity(entity());
  await table.deleteEntity("p", "r");
  assert.deepEqual(await all(table.listEntities()), []);
});

test("select gives the named properties, null for an absent one (wire 5.6)", async (t) => {
  const table = await freshTable(t);
  await table.createEntity(entity({ name: "x", age: 3 }));
  const read = await table.getEntity("p", "r", { queryOptions: { select: ["name", "missing"] } });
  assert.deepEqual(stored(read), { name: "x", missing: null });
});

test("null is not stored", async (t) => {
  const table = await freshTable(t);
  await table.createEntity(entity({ name: "x", nothing: null }));
  await table.updateEntity(entity({ name: null, other: 1 }), "Merge");
  assert.deepEqual(stored(await table.getEntity("p", "r")), entity({ name: "x", other: 1 }));
});

test("any key survives every operation (wire 1.3)", async (t) => {
  const table = await freshTable(t);
  const keys = ["", " ", "it's", "''", '"', "100%", "%20%27", "a+b c", "a&b=c;d,e", "a:b@c!d*e(f)g[h]i", "{k}", "é表", "\u{1f600}", "PartitionKey='x'"];
  for (const key of keys) {
    await t.test(JSON.stringify(key), async () => {
      const keyed = { partitionKey: key, rowKey: key };
      await table.createEntity({ ...keyed, value: 1 });
      await table.updateEntity({ ...keyed, value: 2 }, "Replace");
      assert.deepEqual(stored(await table.getEntity(key, key)), { ...keyed, value: 2 });
      const answer = await table.submitTransaction([["upsert", { ...keyed, value: 3 }]]);
      assert.deepEqual(answer.subResponses.map((each) => each.status), [204]);
      assert.equal((await table.getEntity(key, key)).value, 3);
      await table.deleteEntity(key, key);
      assert.deepEqual(await all(table.listEntities()), []);
    });
  }
});

test("a forbidden character in a key is out of range (wire 1.3)", async (t) => {
  const table = await freshTable(t);
  for (const character of ["/", "\\", "#", "?", "\t", "\n"]) {
    await assert.rejects(table.createEntity({ partitionKey: `a${character}b`, rowKey: "r" }), failure(400, "OutOfRangeInput"));
    await assert.rejects(table.createEntity({ partitionKey: "p", rowKey: `a${character}b` }), failure(400, "OutOfRangeInput"));
  }
});

test("a wrong key is refused and changes nothing (wire 8.4)", async (t) => {
  const table = await freshTable(t);
  await table.createEntity(entity());
  const wrong = new AzureNamedKeyCredential(accountName, Buffer.from("not the key").toString("base64"));
  const stranger = new TableClient(endpoint, table.tableName, wrong, options);
  const refused = failure(403, "AuthenticationFailed");
  await assert.rejects(stranger.getEntity("p", "r"), refused);
  await assert.rejects(stranger.upsertEntity(entity({ value: 1 })), refused);
  await assert.rejects(stranger.submitTransaction([["delete", entity()]]), (error) => error.statusCode === 403);
  await assert.rejects(all(new TableServiceClient(endpoint, wrong, options).listTables()), refused);
  assert.deepEqual(stored(await table.getEntity("p", "r")), entity());
  wrong.update(accountName, accountKey); // a rotated key, followed by the same client
  assert.deepEqual(stored(await stranger.getEntity("p", "r")), entity());
});

test("limits are refused by their names (wire 9)", async (t) => {
  const table = await freshTable(t);
  const many = (count, value) => Object.fromEntries(Array.from({ length: count }, (_, number) => [`P${number}`, value]));
  const cases = [
    [{ text: "x".repeat(65536) }, 400, "PropertyValueTooLarge"],
    [{ data: new Uint8Array(131072) }, 400, "PropertyValueTooLarge"],
    [many(253, 1), 400, "TooManyProperties"],
    [{ ["N".repeat(256)]: 1 }, 400, "PropertyNameTooLong"],
    [many(17, "x".repeat(32000)), 400, "EntityTooLarge"],
    [{ text: "x".repeat(4 * 1024 * 1024 + 1) }, 413, "RequestBodyTooLarge"],
  ];
  for (const [properties, status, code] of cases) {
    await t.test(code, () => assert.rejects(table.createEntity({ ...entity(properties), rowKey: code + status }), failure(status, code)));
  }
  assert.deepEqual(await all(table.listEntities()), []);
});
