// A Tablestone server for tests, and its control API. Knows nothing of orders.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

const OPTIONS = ["serve", "--engine", "memory", "--port", "0", "--control", "0", "--print", "json"];

export class Tablestone {
  static async start() {
    const [command, ...words] = (process.env.TABLESTONE ?? "tablestone").split(" ");
    const server = spawn(command, [...words, ...OPTIONS], { stdio: ["ignore", "pipe", "ignore"] });
    const lines = createInterface({ input: server.stdout });
    const ended = once(server, "exit").then(([status]) => {
      throw new Error(`${command} ended with status ${status}`);
    });
    const [line] = await Promise.race([once(lines, "line"), ended]);
    ended.catch(() => {}); // from now on an end is no failure
    return new Tablestone(server, JSON.parse(line).control);
  }

  constructor(server, control) {
    this.server = server;
    this.control = control;
  }

  // The answer of the control API. A refusal is an error with its sentence.
  async ask(method, path, members) {
    const body = members === undefined ? undefined : JSON.stringify(members);
    const answer = await fetch(this.control + path, { method, body, headers: { "content-type": "application/json" } });
    const text = await answer.text();
    const value = text ? JSON.parse(text) : undefined;
    if (!answer.ok) throw new Error(value.error);
    return value;
  }

  async stop() {
    const ended = once(this.server, "exit");
    this.server.kill();
    await ended;
  }
}
