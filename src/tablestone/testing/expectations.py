"""Assertions about cost: how much the code under test may ask of the service, and how it could ask for less.

Azure bills requests, and a query that reads much is slow on every service.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final, Self, get_args

from tablestone.advice.advising import advise_on_query, advise_on_table
from tablestone.advice.filter_shape import read_shape
from tablestone.advice.workload import PartitionUse, QueryUse, TableUse
from tablestone.model.operations import EntityWrite
from tablestone.query.plan import PlanKind
from tablestone.testing.recorded_requests import LastRequests, RecordedRequest

_WRITES: Final = frozenset(write.__name__ for write in get_args(EntityWrite))
REQUESTS_JUDGED_MAX: Final = 100_000
"""The most requests of a block that are judged. They take less than 100 MB."""
SHOWN_MAX: Final = 10


class TooExpensive(AssertionError):
    """The code under test asked for more than it may. The text names the requests and a cheaper way."""


class ExpectationRefused(ValueError):
    """An expectation without meaning. The text is one sentence."""


@dataclass(frozen=True)
class Budget:
    """The limits of a block; None is no limit.

    `scans` limits the queries that read a whole table, `rows_read` the entities read by all requests, and `read_ratio`
    the entities that a query reads for each one returned. With `account`, only its requests count.
    """

    scans: int | None = None
    requests: int | None = None
    rows_read: int | None = None
    read_ratio: float | None = None
    account: str | None = None

    def __post_init__(self) -> None:
        given: tuple[Any, ...] = (self.scans, self.requests, self.rows_read, self.read_ratio)
        if all(each is None for each in given):
            raise ExpectationRefused("Expect something: scans, requests, rows_read or read_ratio.")
        for each in given:
            if each is not None and not (isinstance(each, int | float) and each >= 0):
                raise ExpectationRefused(
                    f"An expectation is a number that is not negative, not {each!r}."
                )
        if (self.requests or 0) > REQUESTS_JUDGED_MAX:
            raise ExpectationRefused(
                f"Only the first {REQUESTS_JUDGED_MAX} requests of a block are judged: expect no more than those."
            )


class Expectation:
    """A block of code that must stay within a budget. An exception in the block passes through."""

    def __init__(self, requests: LastRequests, budget: Budget) -> None:
        self._requests = requests
        self._budget = budget
        self._before = 0
        self._earlier: list[RecordedRequest] = []
        self._is_full = False

    def __enter__(self) -> Self:
        self._before = self._requests.count
        self._requests.keepers += (self._keep,)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True  # pytest shows the code under test, not this
        self._requests.keepers = tuple(
            each for each in self._requests.keepers if each != self._keep
        )
        if kind is None:
            made = self.requests
            complaints = judge(self._budget, made[:REQUESTS_JUDGED_MAX])
            if self._is_full or len(made) > REQUESTS_JUDGED_MAX:
                complaints.append(
                    f"more than {REQUESTS_JUDGED_MAX} requests: the others were not judged"
                )
            if complaints:
                raise TooExpensive("\n".join(complaints))

    @property
    def requests(self) -> list[RecordedRequest]:
        """The requests of the block so far. Only the last thousand have their headers."""
        last = [each for each in self._requests.since(self._before) if self._counts(each)]
        # A request may have moved to the earlier ones meanwhile.
        return [
            each for each in tuple(self._earlier) if not last or each.number < last[0].number
        ] + last

    def _keep(self, record: RecordedRequest) -> None:
        """Keep a request that `LastRequests` drops, without its headers to save memory."""
        if record.number <= self._before or not self._counts(record):
            return
        if len(self._earlier) < REQUESTS_JUDGED_MAX:
            self._earlier.append(replace(record, headers={}))
        else:
            self._is_full = True

    def _counts(self, record: RecordedRequest) -> bool:
        return self._budget.account in (None, record.account)


_TOLD: Final = set[str]()
"""Advice that was given in this process: a test run says each once."""


def judge(budget: Budget, records: list[RecordedRequest]) -> list[str]:
    """The complaints about the requests, each of one line or a few; empty if they stay within the budget."""
    found = []
    scans = [each for each in records if each.plan == PlanKind.TABLE.value]
    if budget.scans is not None and len(scans) > budget.scans:
        what = f"{_counted(len(scans), 'scan')} of a whole table"
        found.append(_complaint(what, budget.scans, scans))
    if budget.requests is not None and len(records) > budget.requests:
        what = _counted(len(records), "request")
        found.append(_complaint(what, budget.requests, records, has_advice=False))
        found += _what_one_request_would_do(records)
    rows_read = sum(each.rows_read for each in records)
    if budget.rows_read is not None and rows_read > budget.rows_read:
        most = sorted(records, key=lambda each: -each.rows_read)
        found.append(_complaint(f"{rows_read} entities read", budget.rows_read, most))
    if budget.read_ratio is not None:
        ratio = budget.read_ratio
        wasteful = [
            each
            for each in records
            if each.plan and each.rows_read > ratio * max(1, each.rows_returned)
        ]
        if wasteful:
            what = f"{_counted(len(wasteful), 'query')} read more than {ratio:g} times the entities returned"
            found.append(_complaint(what, 0, wasteful))
    return found


def _counted(number: int, what: str) -> str:
    plural = {"query": "queries"}.get(what, what + "s")
    return f"{number} {what if number == 1 else plural}"


def _complaint(
    what: str, allowed: int, records: list[RecordedRequest], *, has_advice: bool = True
) -> str:
    lines = [f"{what}, at most {allowed} expected:"]
    for record in records[:SHOWN_MAX]:
        lines.append(f"  {record}")
        if has_advice and record.plan:
            asked = f"Its filter is {record.filter}." if record.filter else "It has no filter."
            advice = [each for each in _keys_that_help(record) if each not in _TOLD]
            _TOLD.update(advice)
            lines.append(f"    {' '.join([asked, *advice])}")
    if len(records) > SHOWN_MAX:
        lines.append(f"  and {len(records) - SHOWN_MAX} more")
    return "\n".join(lines)


def _keys_that_help(record: RecordedRequest) -> list[str]:
    """How a query could read less."""
    query = QueryUse(
        read_shape(record.filter),
        entities_read=record.rows_read,
        entities_returned=record.rows_returned,
        plan=PlanKind(record.plan),
    )
    found = advise_on_query(query, TableUse(record.table, is_one_task=True))
    return [f"{each.change} {each.cost}" for each in found]


def _what_one_request_would_do(records: list[RecordedRequest]) -> list[str]:
    """Advice where several requests could have been one."""
    writes = Counter((each.table, each.partition) for each in records if each.operation in _WRITES)
    reads = Counter(
        (each.table, each.partition) for each in records if each.operation == "GetEntity"
    )
    used: dict[str, list[PartitionUse]] = {}
    for place in dict.fromkeys((*writes, *reads)):
        partition = PartitionUse(place[1], writes=writes[place], point_reads=reads[place])
        used.setdefault(place[0], []).append(partition)
    return [
        " ".join(filter(None, (each.sentence, each.change)))
        for table, partitions in used.items()
        for each in advise_on_table(TableUse(table, hottest=tuple(partitions), is_one_task=True))
    ]
