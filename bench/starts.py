"""How long builds take to start: `python -m bench.starts PROGRAM ...`, each the path of a `tablestone`.

The median of their starts, in turn: up to the first line of `--version`, and of a server that is ready.
"""

import subprocess
import sys
from statistics import median
from time import perf_counter

STARTS = 11
SERVE = ("serve", "--engine", "memory", "--port", "0")


def seconds(*command: str) -> float:
    began = perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), command
        took = perf_counter() - began
        process.terminate()
    return took


def main(programs: list[str]) -> None:
    starts = [
        [(seconds(each, "--version"), seconds(each, *SERVE)) for each in programs]
        for _ in range(STARTS)
    ]
    for program, took in zip(programs, zip(*starts, strict=True), strict=True):
        version, ready = map(median, zip(*took, strict=True))
        print(f"--version {version:.2f} s, ready after {ready:.2f} s: {program}")


if __name__ == "__main__":
    main(sys.argv[1:])
