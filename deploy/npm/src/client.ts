// A server for tests, and its control API. The members of faults, limits and answers are those of the API.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { stopWithParent } from "./own_process";
import { program } from "./program";

const OPTIONS = ["serve", "--engine", "memory", "--port", "0", "--control", "0", "--print", "json"];
const ERRORS_LENGTH_MAX = 10_000;
const CONFIGURES_A_SERVER = /^(TABLESTONE|AZURITE)_/;

export interface Account {
  name: string;
  key: string;
  endpoint: string;
  connection_string: string;
}

export type Latency =
  | number
  | { fixed: { seconds: number } }
  | { normal: { mean: number; deviation: number } }
  | { long_tail: { median: number; longest: number } };

/** The requests that a fault applies to, how often it acts, and what it does. Times are in seconds. */
export interface Fault {
  account?: string;
  table?: string;
  operation?: string;
  plan?: string;
  header?: Record<string, string>;
  nth?: number;
  count?: number;
  probability?: number;
  error?: string;
  status?: number;
  retry_after?: number;
  committed?: boolean;
  reset?: "before" | "within" | "after";
  truncate?: number;
  page_max?: number;
  conflict?: boolean;
  rate?: number;
  share?: "account" | "table" | "partition";
  latency?: Latency;
}

export interface Duration {
  days?: number;
  hours?: number;
  minutes?: number;
  seconds?: number;
}

/** What requests may cost. */
export interface Limits {
  scans?: number;
  requests?: number;
  rows_read?: number;
  read_ratio?: number;
  account?: string;
}

export interface RecordedRequest {
  number: number;
  method: string;
  path: string;
  account: string;
  operation: string;
  table: string;
  plan: string;
  filter: string;
  partition: string;
  status: number;
  error: string;
  fault: string;
  rows_read: number;
  rows_returned: number;
}

/** Entities by table. */
export type Entities = Record<string, Record<string, unknown>[]>;

/** A server that keeps everything in memory. It ends with the process that has started it, however that ends. */
export class Tablestone {
  private constructor(
    private readonly server: ChildProcess,
    /** Where the control API is. */
    readonly control: string,
  ) {}

  /** Start a server, with further options of `tablestone serve`. An error says in a sentence why it does not start. */
  static async start(...options: string[]): Promise<Tablestone> {
    const own = Object.entries(process.env).filter(([name]) => !CONFIGURES_A_SERVER.test(name));
    const server = spawn(program(), [...OPTIONS, ...options], {
      stdio: ["ignore", "pipe", "pipe", "pipe"],
      env: { ...Object.fromEntries(own), TABLESTONE_PARENT_PIPE: "3" },
    });
    // A test runner that is killed leaves its processes, which go on until their tests end.
    if (process.connected || process.env.NODE_TEST_CONTEXT) stopWithParent(server);
    let errors = "";
    server.stderr!.on("data", (text) => (errors = (errors + text).slice(-ERRORS_LENGTH_MAX)));
    const lines = createInterface({ input: server.stdout! });
    const ended = once(server, "close").then(([status, signal]) => {
      throw new Error(errors.trim() || `The server ended with ${signal ?? `status ${status}`}.`);
    });
    const [line] = await Promise.race([once(lines, "line"), ended]);
    ended.catch(() => {}); // from now on an end is no failure
    // A test run that forgets to stop the server can end.
    server.unref();
    for (const pipe of server.stdio) (pipe as { unref(): void } | null)?.unref();
    return new Tablestone(server, JSON.parse(line).control);
  }

  /** Stop the server, and wait for its end. */
  async stop(): Promise<void> {
    if (this.server.exitCode !== null || this.server.signalCode !== null) return;
    const ended = once(this.server, "exit");
    this.server.ref();
    this.server.kill();
    await ended;
  }

  /** The answer of any operation of the control API. A refusal is an error with its sentence. */
  async ask<Answer = void>(method: string, path: string, members?: object): Promise<Answer> {
    const answer = await fetch(this.control + path, {
      method,
      headers: { "content-type": "application/json" },
      ...(members && { body: JSON.stringify(members) }),
    }).catch((cause) => {
      throw new Error(`The server at ${this.control} does not answer: it was stopped, or has ended.`, { cause });
    });
    const text = await answer.text();
    const value = text ? JSON.parse(text) : undefined;
    if (!answer.ok) throw new Error(value.error);
    return value;
  }

  /** A new account, which is empty: a test that begins with it needs no reset. */
  createAccount(name?: string): Promise<Account> {
    return this.ask("POST", "/accounts", { name });
  }

  /** Store entities in an account, and make the tables that it lacks. */
  async seed(account: Account, entities: Entities): Promise<void> {
    await this.ask("POST", `/seed?account=${account.name}`, entities);
  }

  /** All entities of an account. */
  dump(account: Account): Promise<Entities> {
    return this.ask("GET", `/dump?account=${account.name}`);
  }

  /** Add a fault after the others. */
  async addFault(fault: Fault): Promise<void> {
    await this.ask("POST", "/faults", fault);
  }

  /** Remove all faults, and let random numbers begin again. */
  clearFaults(): Promise<void> {
    return this.ask("DELETE", "/faults");
  }

  /** Stop the clock of the server, now or at a moment. */
  async freezeClock(at?: Date): Promise<void> {
    await this.ask("POST", "/clock/freeze", { at });
  }

  /** Skip some time. */
  async advanceClock(duration: Duration): Promise<void> {
    await this.ask("POST", "/clock/advance", duration);
  }

  /** Go back to the machine's time. */
  async resetClock(): Promise<void> {
    await this.ask("POST", "/clock/reset");
  }

  /** Take a snapshot of all accounts; returns a function that goes back to it, as often as it is called. */
  async snapshot(): Promise<() => Promise<void>> {
    const { id } = await this.ask<{ id: string }>("POST", "/snapshots");
    return () => this.ask("POST", `/snapshots/${id}/restore`);
  }

  /** The last requests, at most a thousand, and how many there have been. */
  requests(since = 0): Promise<{ count: number; requests: RecordedRequest[] }> {
    return this.ask("GET", `/requests?since=${since}`);
  }

  /** What `work` returns. An error lists what its requests cost beyond the limits. */
  async within<Result>(limits: Limits, work: () => Promise<Result>): Promise<Result> {
    const { count } = await this.requests();
    const result = await work();
    const { complaints } = await this.ask<{ complaints: string[] }>("POST", "/cost", { since: count, ...limits });
    if (complaints.length > 0) throw new Error(complaints.join("\n"));
    return result;
  }
}
