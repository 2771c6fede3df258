// What Linux says of this process: proc_pid_stat(5).

import { readFileSync } from "node:fs";

/** The parent, which `process.ppid` of Jest's copy of `process` does not follow; the group, and that in the foreground. */
export function stat() {
  const text = readFileSync("/proc/self/stat", "utf8");
  const [, parent, group, , , foreground] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return { parent, group, foreground };
}
