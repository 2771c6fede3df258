"""Plant bugs one by one and run the tests that have to notice them: `python -m tests.mutations [NAME ...]`.

At first the tests run on the source as it is, and have to pass. The status is 0 if each bug is found, 1 if one
survives or if a test fails without it, 2 if there is no bug of the name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutations.planted import FAILED, PASSED, CopiedSource, Mutation, command_of, read_list


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these bugs only")
    options = parser.parse_args(arguments)
    listed = read_list()
    unknown = set(options.names) - {each.name for each in listed}
    if unknown:
        print(f"There is no such bug: {min(unknown)!r}.", file=sys.stderr)
        return 2
    chosen = [each for each in listed if not options.names or each.name in options.names]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        source = CopiedSource(Path(directory))
        if source.tests(sorted({each.arguments()[0] for each in chosen})) != PASSED:
            print("A test fails without a planted bug.", file=sys.stderr)
            return 1
        missed = [each for each in chosen if not _is_found(source, each)]
    print(
        f"{len(chosen) - len(missed)} of {len(chosen)} bugs found in {time.monotonic() - began:.0f} s"
    )
    return int(bool(missed))


def _is_found(source: CopiedSource, mutation: Mutation) -> bool:
    status = source.run(mutation)
    told = {FAILED: "found", PASSED: "SURVIVED"}.get(status, "its tests could not be run")
    print(f"{mutation.name}: {told} by {command_of(mutation)}", flush=True)
    return status == FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
