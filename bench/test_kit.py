"""How long the test kit takes: `python -m bench.test_kit`, with `tablestone[testing]` installed.

Start and stop in the process, a fresh account, a reset, and a snapshot of 100,000 entities. Each figure is the median
of its repetitions, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

from tablestone.testing import TableStorage

ENTITIES = 100_000
ACCOUNTS = 1000


def milliseconds(work: Callable[[], object], times: int) -> float:
    """The median of so many runs."""
    took = []
    for _ in range(times):
        started = perf_counter()
        work()
        took.append(1000 * (perf_counter() - started))
    return median(took)


def show(what: str, figure: float) -> None:
    print(f"{what:44} {figure:9.2f} ms")


def main() -> None:
    """Print all figures."""
    storage = TableStorage()
    show("first start", milliseconds(storage.start, 1))
    show("stop", milliseconds(storage.close, 1))
    later = [TableStorage() for _ in range(20)]
    show("later start", median(milliseconds(each.start, 1) for each in later))
    show("stop, median of 20", median(milliseconds(each.close, 1) for each in later))
    with TableStorage() as storage:
        show(f"fresh account, of {ACCOUNTS}", milliseconds(storage.create_account, ACCOUNTS))
        account = storage.create_account()
        rows = [{"PartitionKey": "p", "RowKey": f"{n:03}"} for n in range(100)]

        def used_and_reset() -> None:
            storage.reset(account)

        took = []
        for _ in range(50):
            storage.seed({"Orders": rows}, account=account)
            took.append(milliseconds(used_and_reset, 1))
        show("reset of an account with 100 entities", median(took))
    with TableStorage() as storage:
        storage.seed({
            "Orders": [
                {"PartitionKey": f"{n // 1000:04}", "RowKey": f"{n:06}", "total": n}
                for n in range(ENTITIES)
            ]
        })  # fmt: skip
        show(f"snapshot of {ENTITIES} entities", milliseconds(storage.snapshot, 20))
        snapshot = storage.snapshot()
        show(f"restore of {ENTITIES} entities", milliseconds(lambda: storage.restore(snapshot), 20))


if __name__ == "__main__":
    main()
