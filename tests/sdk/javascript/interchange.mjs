// The JavaScript side of the interchange (tests/sdk/interchange/README.md): `write TABLE FILE`, `read TABLE`, `sign TABLE`,
// `attempt OPERATION:TABLE ...`.

import { readFile } from "node:fs/promises";
import {
  AzureNamedKeyCredential,
  TableClient,
  generateAccountSas,
  generateTableSas,
} from "@azure/data-tables";

const CONTRACT = 1;

function doubleOf(hex) {
  return Buffer.from(hex, "hex").readDoubleBE();
}

function hexOf(number) {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleBE(number);
  return Number.isNaN(number) ? "7ff8000000000000" : bytes.toString("hex");
}

// A Double that JSON cannot write as a number is sent as the service's text (wire 5.3).
function doubleForTheSdk(number) {
  return { type: "Double", value: Number.isFinite(number) ? number : String(number) };
}

// The SDK's value for the canonical text. A Date has milliseconds: an instant goes as text with its type.
function sdkValue(type, text) {
  switch (type) {
    case "Edm.String":
      return text;
    case "Edm.Int32":
      return { type: "Int32", value: text };
    case "Edm.Int64":
      return BigInt(text);
    case "Edm.Double":
      return doubleForTheSdk(doubleOf(text));
    case "Edm.Boolean":
      return text === "true";
    case "Edm.DateTime":
      return { type: "DateTime", value: text };
    case "Edm.Guid":
      return { type: "Guid", value: text };
    case "Edm.Binary":
      return new Uint8Array(Buffer.from(text, "base64"));
    default:
      throw new Error(`unknown type ${type}`);
  }
}

function sevenDigits(serviceText) {
  const [whole, fraction = ""] = serviceText.replace(/Z$/, "").split(".");
  return `${whole}.${fraction.padEnd(7, "0")}Z`;
}

// With disableTypeConversion every value comes as { type, value }, the value as text (numbers: as JavaScript prints them).
// What type the SDK names for an un-annotated number is its guess, Int32 for every whole one: so it is "number" here.
function canonical({ type, value }) {
  switch (type) {
    case "Int32":
    case "Double":
      return { type: "number", value: hexOf(Number(value)) };
    case "Boolean":
      return { type: "Edm.Boolean", value: String(value) };
    case "DateTime":
      return { type: "Edm.DateTime", value: sevenDigits(value) };
    default:
      return { type: `Edm.${type}`, value };
  }
}

const NOT_PROPERTIES = new Set(["partitionKey", "rowKey", "timestamp", "etag"]);

function print(source, entity) {
  const properties = Object.entries(entity)
    .filter(([name]) => !NOT_PROPERTIES.has(name) && !name.startsWith("odata."))
    .map(([name, value]) => ({ name, ...canonical(value) }));
  const { partitionKey, rowKey } = entity;
  process.stdout.write(JSON.stringify({ source, partitionKey, rowKey, properties }) + "\n");
}

async function write(table, path) {
  const { contract, entities } = JSON.parse(await readFile(path, "utf8"));
  if (contract !== CONTRACT) throw new Error(`this program speaks contract ${CONTRACT}, not ${contract}`);
  for (const { partitionKey, rowKey, properties } of entities) {
    const values = Object.fromEntries(properties.map(({ name, type, value }) => [name, sdkValue(type, value)]));
    await table.createEntity({ partitionKey, rowKey, ...values });
  }
}

async function read(table) {
  const listed = [];
  for await (const entity of table.listEntities({ disableTypeConversion: true })) {
    print("list", entity);
    listed.push(entity);
  }
  for (const { partitionKey, rowKey } of listed) {
    print("get", await table.getEntity(partitionKey, rowKey, { disableTypeConversion: true }));
  }
}

// With a token, if there is one, from a credential that asks nobody for it.
function tableClient(tableName) {
  const { TABLESTONE_TEST_TOKEN: token, TABLESTONE_TEST_ENDPOINT, TABLESTONE_TEST_CONNECTION_STRING } = process.env;
  if (token) {
    const credential = { getToken: async () => ({ token, expiresOnTimestamp: Date.now() + 3_600_000 }) };
    return new TableClient(TABLESTONE_TEST_ENDPOINT, tableName, credential);
  }
  return TableClient.fromConnectionString(TABLESTONE_TEST_CONNECTION_STRING, tableName, { allowInsecureConnection: true });
}

function sign(tableName) {
  const credential = new AzureNamedKeyCredential(process.env.TABLESTONE_TEST_ACCOUNT, process.env.TABLESTONE_TEST_KEY);
  const expiresOn = new Date(Date.now() + 3_600_000);
  const everything = { query: true, write: true, delete: true, list: true, add: true, update: true };
  const account = generateAccountSas(credential, {
    expiresOn,
    permissions: everything,
    resourceTypes: "sco",
    services: { table: true },
  });
  const permissions = { query: true, add: true, update: true, delete: true };
  const table = generateTableSas(tableName, credential, { expiresOn, permissions });
  for (const [signature, token] of [["account", account], ["table", table]]) {
    process.stdout.write(JSON.stringify({ signature, token }) + "\n");
  }
}

const ENTITY = { partitionKey: "p", rowKey: "r" };

// With the retries that the SDK has by itself.
const OPERATIONS = {
  insert: (table) => table.createEntity(ENTITY),
  get: (table) => table.getEntity("p", "r"),
  update: async (table) => {
    const { etag } = await table.getEntity("p", "r");
    await table.updateEntity({ ...ENTITY, changed: true }, "Replace", { etag });
  },
};

async function attempt(asked) {
  for (const each of asked) {
    const [operation, tableName] = each.split(":");
    let status = 0;
    try {
      await OPERATIONS[operation](tableClient(tableName));
    } catch (error) {
      status = error.statusCode ?? -1;
    }
    process.stdout.write(JSON.stringify({ attempt: each, status }) + "\n");
  }
}

const [command, tableName, path] = process.argv.slice(2);
if (command === "attempt") {
  await attempt(process.argv.slice(3));
  process.exit(0);
}
const table = tableClient(tableName);
if (command === "write") await write(table, path);
else if (command === "read") await read(table);
else if (command === "sign") sign(tableName);
else throw new Error("write TABLE ENTITIES_JSON | read TABLE | sign TABLE | attempt OPERATION:TABLE ...");
