"""How long builds take to start: `python -m bench.starts PROGRAM ...`, each the path of a `tablestone`.

For each, the median of its starts, in turn with those of the others: `--version` to its end, and `serve` up to its
first line.
"""

import subprocess
import sys
from statistics import median
from time import perf_counter

STARTS = 11
SERVE = ("serve", "--engine", "memory", "--port", "0")


def version_seconds(program: str) -> float:
    began = perf_counter()
    subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - began


def ready_seconds(program: str) -> float:
    began = perf_counter()
    with subprocess.Popen(
        [program, *SERVE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline(), program
        took = perf_counter() - began
        server.terminate()
    return took


def main(programs: list[str]) -> None:
    took: dict[str, list[tuple[float, float]]] = {program: [] for program in programs}
    for _ in range(STARTS):
        for program in programs:
            took[program].append((version_seconds(program), ready_seconds(program)))
    for program, starts in took.items():
        version, ready = map(median, zip(*starts, strict=True))
        print(f"--version {version:.2f} s, ready after {ready:.2f} s: {program}")


if __name__ == "__main__":
    main(sys.argv[1:])
