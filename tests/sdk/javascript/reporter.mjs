// node:test's events as JSON lines, one for each finished test: what tests/sdk/test_javascript.py reads.

export default async function* reporter(events) {
  for await (const { type, data } of events) {
    if (type !== "test:pass" && type !== "test:fail") continue;
    const error = data.details?.error;
    const told = error?.cause?.stack ?? error?.cause ?? error?.stack ?? error;
    yield JSON.stringify({
      name: data.name,
      nesting: data.nesting,
      passed: type === "test:pass",
      skipped: data.skip ?? null,
      error: told === undefined ? null : String(told),
    }) + "\n";
  }
}
