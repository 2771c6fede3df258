#!/usr/bin/env node
// The command `tablestone`: runs the program of this package, and ends as it ends. The program ends with this process,
// also by SIGKILL: then its end of a pipe closes.

import { spawn } from "node:child_process";
import { stat, stopWithParent } from "./own_process";
import { program } from "./program";

const FAILED = 1;

function refuse(sentence: string): void {
  console.error(`tablestone: ${sentence}`);
  process.exitCode = FAILED;
}

// Whether a terminal sends SIGINT to the program too, because both are in its foreground group. A second SIGINT would end
// the program at once.
function hasTerminal(): boolean {
  const { group, foreground } = stat();
  return group === foreground;
}

function launch(path: string): void {
  const launched = spawn(path, process.argv.slice(2), {
    stdio: ["inherit", "inherit", "inherit", "pipe"],
    env: { ...process.env, TABLESTONE_PARENT_PIPE: "3" },
  });
  // npm runs this command in a shell. SIGTERM ends the two, and does not come here.
  if (process.env.npm_command) stopWithParent(launched);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      if (signal !== "SIGINT" || !hasTerminal()) launched.kill(signal);
    });
  }
  launched.on("error", (error) => refuse(`The program of this package cannot be started: ${error.message}.`));
  launched.on("exit", (status, signal) => {
    if (signal !== null) {
      process.removeAllListeners(signal);
      process.kill(process.pid, signal);
    }
    process.exitCode = status ?? FAILED;
  });
}

try {
  launch(program());
} catch (error) {
  refuse((error as Error).message);
}
