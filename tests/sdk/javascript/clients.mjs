// The clients of @azure/data-tables for the server under test, and a table of its own for every test.

import { randomUUID } from "node:crypto";
import { AzureNamedKeyCredential, TableClient, TableServiceClient } from "@azure/data-tables";

export const endpoint = process.env.TABLESTONE_TEST_ENDPOINT;
export const accountName = process.env.TABLESTONE_TEST_ACCOUNT;
export const accountKey = process.env.TABLESTONE_TEST_KEY;
export const connectionString = process.env.TABLESTONE_TEST_CONNECTION_STRING;

// No retries: a test wants the first answer.
export const options = { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } };

export function credential() {
  return new AzureNamedKeyCredential(accountName, accountKey);
}

export function serviceClient() {
  return new TableServiceClient(endpoint, credential(), options);
}

export function tableClient(name) {
  return new TableClient(endpoint, name, credential(), options);
}

export function freshTableName() {
  return "t" + randomUUID().replaceAll("-", "");
}

// An empty table for one test, gone when the test is.
export async function freshTable(t) {
  const table = tableClient(freshTableName());
  await table.createTable();
  t.after(() => table.deleteTable());
  return table;
}

export async function all(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

// What the user stored: without the members the service adds.
export function stored(entity) {
  const { timestamp, etag, "odata.metadata": metadata, ...rest } = entity;
  return rest;
}

export function failure(statusCode, code) {
  return (error) => {
    const found = [error.statusCode, error.code ?? error.details?.odataError?.code];
    if (found[0] === statusCode && (found[1] === code || error.details?.odataError?.code === code)) return true;
    throw new Error(`expected ${statusCode} ${code}, got ${found.join(" ")}`, { cause: error });
  };
}
