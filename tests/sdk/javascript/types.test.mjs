// @azure/data-tables: every EDM type there and back (wire 5.3).

import assert from "node:assert/strict";
import { test } from "node:test";
import { failure, freshTable } from "./clients.mjs";

const GUID = "c9da6455-213d-42c9-9a79-3e9149a57833";

// What is sent, what a read gives by default, what a read with disableTypeConversion gives.
const VALUES = [
  ["text", "text", { type: "String", value: "text" }],
  ["", "", { type: "String", value: "" }],
  ["it's \"é表\u{1f600}\" <&>\r\n\u2028", "it's \"é表\u{1f600}\" <&>\r\n\u2028", { type: "String", value: "it's \"é表\u{1f600}\" <&>\r\n\u2028" }],
  ["2014-05-07T08:20:53Z", "2014-05-07T08:20:53Z", { type: "String", value: "2014-05-07T08:20:53Z" }],
  [42, 42, { type: "Int32", value: "42" }],
  [-2147483648, -2147483648, { type: "Int32", value: "-2147483648" }],
  [{ type: "Int32", value: "7" }, 7, { type: "Int32", value: "7" }],
  [{ type: "Int32", value: 7 }, 7, { type: "Int32", value: "7" }],
  [0.1, 0.1, { type: "Double", value: "0.1" }],
  [1e-7, 1e-7, { type: "Double", value: "1e-7" }],
  [1.7976931348623157e308, 1.7976931348623157e308, { type: "Double", value: "1.7976931348623157e+308" }],
  [5e-324, 5e-324, { type: "Double", value: "5e-324" }],
  [{ type: "Double", value: 5 }, 5, { type: "Int32", value: "5" }], // the SDK cannot tell 5.0 from 5
  [{ type: "Double", value: "NaN" }, "NaN", { type: "Double", value: "NaN" }],
  [{ type: "Double", value: "Infinity" }, "Infinity", { type: "Double", value: "Infinity" }],
  [{ type: "Double", value: "-Infinity" }, "-Infinity", { type: "Double", value: "-Infinity" }],
  [9223372036854775807n, 9223372036854775807n, { type: "Int64", value: "9223372036854775807" }],
  [-9223372036854775808n, -9223372036854775808n, { type: "Int64", value: "-9223372036854775808" }],
  [{ type: "Int64", value: "7" }, 7n, { type: "Int64", value: "7" }],
  [true, true, { type: "Boolean", value: "true" }],
  [false, false, { type: "Boolean", value: "false" }],
  [new Date("2012-11-10T03:04:05.200Z"), new Date("2012-11-10T03:04:05.200Z"), { type: "DateTime", value: "2012-11-10T03:04:05.2Z" }],
  [new Date("2012-11-10T03:04:05Z"), new Date("2012-11-10T03:04:05Z"), { type: "DateTime", value: "2012-11-10T03:04:05Z" }],
  [{ type: "DateTime", value: "2012-11-10T03:04:05.1234567Z" }, new Date("2012-11-10T03:04:05.123Z"), { type: "DateTime", value: "2012-11-10T03:04:05.1234567Z" }],
  [{ type: "DateTime", value: "1601-01-01T00:00:00Z" }, new Date("1601-01-01T00:00:00Z"), { type: "DateTime", value: "1601-01-01T00:00:00Z" }],
  [{ type: "DateTime", value: "9999-12-31T23:59:59.9999999Z" }, new Date("9999-12-31T23:59:59.999Z"), { type: "DateTime", value: "9999-12-31T23:59:59.9999999Z" }],
  [{ type: "Guid", value: GUID }, { type: "Guid", value: GUID }, { type: "Guid", value: GUID }],
  [{ type: "Guid", value: GUID.toUpperCase() }, { type: "Guid", value: GUID }, { type: "Guid", value: GUID }],
  [new Uint8Array([0, 255, 1]), new Uint8Array([0, 255, 1]), { type: "Binary", value: "AP8B" }],
  [new Uint8Array(0), new Uint8Array(0), { type: "Binary", value: "" }],
  [{ type: "Binary", value: "++//" }, new Uint8Array([251, 239, 255]), { type: "Binary", value: "++//" }],
];

function plain(value) {
  return ArrayBuffer.isView(value) ? [...value] : value;
}

test("a value comes back as it was sent", async (t) => {
  const table = await freshTable(t);
  for (const [number, [sent, converted, typed]] of VALUES.entries()) {
    const rowKey = String(number);
    await t.test(`${rowKey}: ${typed.type} ${typed.value}`, async () => {
      await table.createEntity({ partitionKey: "p", rowKey, value: sent });
      const read = await table.getEntity("p", rowKey);
      assert.deepEqual(plain(read.value), plain(converted));
      const unconverted = await table.getEntity("p", rowKey, { disableTypeConversion: true });
      assert.deepEqual(unconverted.value, typed);
      // In a transaction, and written back as it was read.
      await table.submitTransaction([["upsert", { partitionKey: "p", rowKey, value: unconverted.value }, "Replace"]]);
      assert.deepEqual((await table.getEntity("p", rowKey, { disableTypeConversion: true })).value, typed);
    });
  }
});

test("a value outside its type is refused", async (t) => {
  const table = await freshTable(t);
  const cases = [
    [{ type: "DateTime", value: "1600-12-31T00:00:00Z" }, "OutOfRangeInput"],
    [{ type: "DateTime", value: "yesterday" }, "InvalidInput"],
    [{ type: "Guid", value: "not a guid" }, "InvalidInput"],
    [{ type: "Int32", value: "2147483648" }, "InvalidInput"],
    [{ type: "Int64", value: "9223372036854775808" }, "InvalidInput"],
    [{ type: "Binary", value: "not base64!" }, "InvalidInput"],
  ];
  for (const [value, code] of cases) {
    await t.test(`${value.type} ${value.value}`, () =>
      assert.rejects(table.createEntity({ partitionKey: "p", rowKey: value.value, value }), failure(400, code)));
  }
});
