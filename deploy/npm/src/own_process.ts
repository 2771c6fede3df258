// What Linux says of this process: proc_pid_stat(5).

import type { ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { setInterval } from "node:timers"; // not those that a test replaces

const LOOK_MILLISECONDS = 500;

/** The parent, which `process.ppid` of Jest's copy of `process` does not follow; the group, and that in the foreground. */
export function stat() {
  const text = readFileSync("/proc/self/stat", "utf8");
  const [, parent, group, , , foreground] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return { parent, group, foreground };
}

/** Stop the server when the parent of this process has ended. */
export function stopWithParent(server: ChildProcess): void {
  const { parent } = stat();
  const looking = setInterval(() => {
    if (stat().parent === parent) return;
    clearInterval(looking); // a second signal would end the server at once
    server.kill();
  }, LOOK_MILLISECONDS).unref();
  server.once("exit", () => clearInterval(looking));
}
