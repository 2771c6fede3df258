// What Linux says of this process: proc_pid_stat(5).

import { readFileSync } from "node:fs";

interface Stat {
  parent?: string;
  group?: string;
  /** The process group in the foreground of the terminal. */
  foreground?: string;
}

/** Jest copies the object `process` once, so its `ppid` never changes. */
export function stat(): Stat {
  const text = readFileSync("/proc/self/stat", "utf8");
  const [, parent, group, , , foreground] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return { parent, group, foreground };
}
