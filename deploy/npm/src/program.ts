// The program in this package, and the machines that can run it.

import { statSync } from "node:fs";
import { join } from "node:path";

const GLIBC_MIN = "2.36";

/** The path of the program. Throws an error whose message is one sentence if this machine cannot run it. */
export function program(): string {
  const { platform, arch } = process;
  const report = process.report.getReport() as unknown as { header: { glibcVersionRuntime?: string } };
  const glibc = report.header.glibcVersionRuntime;
  const libc = platform !== "linux" ? "" : glibc === undefined ? ", without glibc" : `, with glibc ${glibc}`;
  const isOld = glibc !== undefined && glibc.localeCompare(GLIBC_MIN, "en", { numeric: true }) < 0;
  if (platform !== "linux" || arch !== "x64" || glibc === undefined || isOld) {
    throw new Error(
      `This package is for Linux on x86-64 with glibc ${GLIBC_MIN} or later (Debian 12, Ubuntu 24.04), and this is ` +
        `${platform} on ${arch}${libc}: use Tablestone's container image or Python package or, on Windows, this package in WSL.`,
    );
  }
  const path = join(__dirname, "..", "server", "lib", "tablestone-program");
  // On a full disk npm warns, leaves empty files and says that all is well. An empty program would run, and do nothing.
  if (statSync(path).size === 0) throw new Error("This package is not complete: install it again, with more free space.");
  return path;
}
