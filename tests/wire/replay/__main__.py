"""`python -m tests.wire.replay` replays the recordings against any server, and prints statistics and differences."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .account import Account
from .archive import ArchiveUnavailableError, recordings_archive
from .cassettes import load_recordings
from .replayer import replay_all
from .statistics import places, statistics
from .target import Target

if TYPE_CHECKING:
    from .replayer import Outcome

# The well-known development account (wire 1.1); not a secret.
DEVELOPMENT_ACCOUNT = "devstoreaccount1"
DEVELOPMENT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.wire.replay",
        description="Replay the live service's recorded answers and show what differs.",
    )
    parser.add_argument("--endpoint", required=True, help="http://127.0.0.1:10002/devstoreaccount1")
    parser.add_argument("--account", default=DEVELOPMENT_ACCOUNT)
    parser.add_argument("--key", default=DEVELOPMENT_KEY)
    parser.add_argument("--show", metavar="NAME", help="only recordings whose name contains this")
    parser.add_argument(
        "--clear", action="store_true", help="delete the tables that the account holds already"
    )
    options = parser.parse_args(arguments)
    try:
        recordings = load_recordings(recordings_archive())
    except ArchiveUnavailableError as unavailable:
        print(unavailable, file=sys.stderr)
        return 2
    chosen = [recording for recording in recordings if (options.show or "") in recording.name]
    with Target(options.endpoint, options.account, options.key) as target:
        if not options.clear and Account(target).table_names():
            print(
                "The account holds tables, which a replay deletes; --clear agrees.", file=sys.stderr
            )
            return 2
        outcomes = [outcome for of_one in replay_all(chosen, target).values() for outcome in of_one]
    report(outcomes)
    return 0 if not any(outcome.differences for outcome in outcomes) else 1


def report(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.differences:
            print(outcome)
    if any(outcome.differences for outcome in outcomes):
        print(places(outcomes))
    print(statistics(outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
