"""Plant bugs one by one and run the tests that have to notice them: `python -m tests.stress.mutations [NAME ...]`.

First the tests must pass on the source as it is. Each processor plants bugs in its own copy. A bug that makes its tests
run for ever is found, too. Exits with 0 if each bug is found, with 1 if one survives or a test fails without it, with 2
if no bug has the name.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).parents[2]))

from stress.mutations.planted import (
    ENDLESS,
    FAILED,
    PASSED,
    CopiedSource,
    Mutation,
    command_of,
    read_list,
    touched_since,
)

_TOLD = {FAILED: "found", PASSED: "SURVIVED", ENDLESS: "found, as it runs for ever,"}
_NOT_RUN = "its tests could not be run"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these bugs only")
    parser.add_argument(
        "--since",
        metavar="COMMIT",
        help="only bugs whose file, tests or row have changed since then; all, if git does not know the commit",
    )
    options = parser.parse_args(arguments)
    listed = read_list()
    unknown = set(options.names) - {each.name for each in listed}
    if unknown:
        print(f"There is no such bug: {min(unknown)!r}.", file=sys.stderr)
        return 2
    chosen = [each for each in listed if not options.names or each.name in options.names]
    if options.since is not None:
        chosen = touched_since(options.since, chosen)
        print(
            f"{len(chosen)} of {len(listed)} bugs were touched since {options.since}.", flush=True
        )
    if not chosen:
        return 0
    began = time.monotonic()
    processors = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(processors) as threads:
        sources: SimpleQueue[CopiedSource] = SimpleQueue()
        for number in range(processors):
            sources.put(CopiedSource(Path(directory, str(number))))
        unplanted = sorted({each.arguments()[0] for each in chosen})
        shares = [unplanted[number::processors] for number in range(processors)]
        statuses = threads.map(lambda share: _tests(sources, share), filter(None, shares))
        if set(statuses) != {PASSED}:
            print("A test fails, or does not end, without a planted bug.", file=sys.stderr)
            return 1
        found = sum(threads.map(lambda each: _is_found(sources, each), chosen))
    print(f"{found} of {len(chosen)} bugs found in {time.monotonic() - began:.0f} s")
    return int(found < len(chosen))


def _tests(sources: SimpleQueue[CopiedSource], arguments: list[str]) -> int:
    source = sources.get()
    try:
        return source.tests(arguments)
    finally:
        sources.put(source)


def _is_found(sources: SimpleQueue[CopiedSource], mutation: Mutation) -> bool:
    source = sources.get()
    try:
        status = source.run(mutation)
    finally:
        sources.put(source)
    print(f"{mutation.name}: {_TOLD.get(status, _NOT_RUN)} by {command_of(mutation)}", flush=True)
    return status in (FAILED, ENDLESS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
