"""The rules of faults: which requests a rule applies to, how often it acts, and what it does.

A rule is a value, checked when it is made. Random numbers follow from a seed and the numbers of rule and request, so a
program gets the same faults in every run.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple, get_args

from tablestone.auth.account import is_account_name
from tablestone.limits import PAGE_ENTITIES_MAX
from tablestone.model import operations
from tablestone.model.errors import ERRORS
from tablestone.model.keys import TABLE_NAME
from tablestone.query.plan import PlanKind
from tablestone.testing.recorded_requests import RecordedRequest

_OPERATIONS: Final = tuple(
    operation
    for union in get_args(operations.Operation)
    for operation in (get_args(union) or (union,))
)
OPERATIONS: Final = frozenset(operation.__name__ for operation in _OPERATIONS)
CODE_OF_STATUS: Final = {
    ERRORS[code].status: code
    for code in (
        *("InvalidInput", "NoAuthenticationInformation", "AuthorizationFailure"),
        *("ResourceNotFound", "MethodNotAllowed", "EntityAlreadyExists"),
        *("MissingContentLengthHeader", "UpdateConditionNotSatisfied", "RequestBodyTooLarge"),
        *("MediaTypeNotSupported", "InternalError", "NotImplemented", "ServerBusy"),
    )
}
"""The error for each status of the service's errors (wire 11), for a rule that names none."""
QUERY: Final = operations.QueryEntities.__name__
CONDITIONAL_WRITES: Final = frozenset(
    operation.__name__
    for operation in (operations.EntityGroupTransaction, *get_args(operations.EntityWrite))
    if operation is operations.EntityGroupTransaction or "if_match" in operation.__annotations__
)
WITHOUT_TABLE: Final = frozenset(
    operation.__name__ for operation in _OPERATIONS if "table" not in operation.__annotations__
)
ResetMoment = Literal["before", "within", "after"]
Share = Literal["account", "table", "partition"]

Draw = Callable[[], float]
"""Returns the next random number, at least 0 and less than 1."""
Latency = Callable[[Draw], float]
"""Seconds that a request waits."""


class FaultRefused(ValueError):
    """A rule that means nothing or contradicts itself. The text is one sentence."""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Kind(NamedTuple):
    """The values of a member: in words, as a JSON schema, and as a check."""

    words: str
    schema: dict[str, Any]
    accepts: Callable[[Any], bool]


class Member(NamedTuple):
    """A part of a rule, a member of a JSON object, or a parameter of a query."""

    name: str
    kind: Kind
    text: str
    is_required: bool = False


def _one_of(values: Iterable[str]) -> Kind:
    texts = sorted(values)
    return Kind(f"one of {', '.join(texts)}", {"type": "string", "enum": texts}, texts.__contains__)


TEXT: Final = Kind("a text", {"type": "string"}, lambda value: isinstance(value, str))
NUMBER: Final = Kind("a number", {"type": "number"}, is_number)
WHOLE: Final = Kind("a whole number", {"type": "integer"}, is_whole)
TRUTH: Final = Kind("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool))
HEADERS: Final = Kind(
    "an object of texts",
    {"type": "object", "additionalProperties": TEXT.schema},
    lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(each, str) for each in (*value, *value.values()))
    ),
)
LATENCY: Final = Kind(
    "a number of seconds, fixed(...), normal(...) or long_tail(...)",
    {},
    lambda value: is_number(value) or callable(value),
)


def _part(kind: Kind, text: str, default: Any = None) -> Any:
    return field(default=default, metadata={"kind": kind, "text": text})


@dataclass(frozen=True)
class _InSeconds:
    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if not is_number(value) or value < 0:
                raise FaultRefused(
                    f"{part.name} of {type(self).__name__} is a number of seconds that is not negative, not {value!r}."
                )


@dataclass(frozen=True)
class fixed(_InSeconds):  # noqa: N801 - in a rule it reads as a function
    """The same wait every time."""

    seconds: float

    def __call__(self, _draw: Draw) -> float:
        return self.seconds


@dataclass(frozen=True)
class normal(_InSeconds):  # noqa: N801 - as above
    """A normal distribution around a mean; never negative."""

    mean: float
    deviation: float

    def __call__(self, draw: Draw) -> float:
        radius = math.sqrt(-2 * math.log(1 - draw()))
        return max(0.0, self.mean + self.deviation * radius * math.cos(math.tau * draw()))


@dataclass(frozen=True)
class long_tail(_InSeconds):  # noqa: N801 - as above
    """Half wait at most `median`. The tail falls as 1/x to `longest`: one in a thousand waits 500 medians or more."""

    median: float
    longest: float

    def __call__(self, draw: Draw) -> float:
        return min(self.longest, self.median * 0.5 / (1 - draw()))


@dataclass(frozen=True)
class Rule:
    """One rule: the requests it applies to, how often it acts, and what it does.

    `account`, `table`, `operation`, `plan` and `header` select requests. The rule acts on `count` of these from the
    `nth` on (the first is 1), each with this `probability`; without `nth` and `count`, on all of them.

    A rule does one thing: answer an error, cut the connection (`reset` or `truncate`), shorten a page, cause a
    `conflict`, or limit a `rate`. It may wait for a `latency` first, or do only that: a number of seconds, or one of
    `fixed`, `normal` and `long_tail`.
    """

    account: str | None = _part(TEXT, "Only requests of this account.")
    table: str | None = _part(TEXT, "Only requests to this table.")
    operation: str | None = _part(_one_of(OPERATIONS), "Only this operation.")
    plan: str | None = _part(
        # A rule acts before the server decides whether an index serves the query.
        _one_of(kind.value for kind in PlanKind if kind is not PlanKind.INDEX),
        "Only queries with this plan of keys.",
    )
    header: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"kind": HEADERS, "text": "Only requests whose headers contain these texts."},
    )
    nth: int | None = _part(
        WHOLE, "Act from the nth matching request on; without count, only on that one."
    )
    count: int | None = _part(WHOLE, "Act on this many requests.")
    probability: float = _part(NUMBER, "Act on each request with this probability, up to 1.", 1.0)
    error: str | None = _part(_one_of(ERRORS), "Answer this error of the service.")
    status: int | None = _part(WHOLE, "Answer an error with this status.")
    retry_after: int | None = _part(WHOLE, "Seconds for the header Retry-After of the error.")
    committed: bool = _part(TRUTH, "Carry out the operation before the error is answered.", False)
    reset: ResetMoment | None = _part(
        _one_of(get_args(ResetMoment)), "Reset the connection: before, within or after."
    )
    truncate: int | None = _part(WHOLE, "End the connection after this many bytes of the body.")
    page_max: int | None = _part(
        WHOLE, "Return at most this many entities in a page; 0 is an empty page."
    )
    conflict: bool = _part(TRUTH, "Let another write change the entity first.", False)
    rate: float | None = _part(
        NUMBER, "Answer ServerBusy above this many operations a second of a share."
    )
    share: Share = _part(_one_of(get_args(Share)), "What the rate applies to.", "partition")
    latency: float | Latency | None = _part(LATENCY, "Wait before the operation.")

    def __post_init__(self) -> None:
        for part in fields(self):
            value, kind = getattr(self, part.name), part.metadata["kind"]
            if not (kind.accepts(value) or (value is None and part.default is None)):
                raise FaultRefused(f"{part.name} is {kind.words}, not {value!r}.")
        if self.error is None and self.status is not None and self.status not in CODE_OF_STATUS:
            shown = ", ".join(map(str, CODE_OF_STATUS))
            raise FaultRefused(
                f"The service has no error with status {self.status}; it has errors with {shown}."
            )
        if self.table is not None and not TABLE_NAME.fullmatch(self.table):
            raise FaultRefused(f"No table has the name {self.table[:80]!r}.")
        if self.account is not None and not is_account_name(self.account):
            raise FaultRefused(f"No account has the name {self.account[:40]!r}.")
        actions = self.actions
        if not actions and self.latency is None:
            raise FaultRefused("A rule needs something to do: error, status, reset, latency, ...")
        if len(actions) > 1:
            raise FaultRefused(
                f"A rule does one thing: {' and '.join(actions)} are {len(actions)}."
            )
        for sentence in self._contradictions():
            raise FaultRefused(f"The rule has no meaning: {sentence}.")

    @property
    def actions(self) -> list[str]:
        """The names of its actions. A latency is not one: it may come before any of them."""
        named = {
            "error": self.error is not None or self.status is not None,
            "reset": self.reset is not None,
            "truncate": self.truncate is not None,
            "page_max": self.page_max is not None,
            "conflict": self.conflict,
            "rate": self.rate is not None,
        }
        return [name for name, is_asked in named.items() if is_asked]

    @property
    def name(self) -> str:
        """The name of the fault in the record of a request."""
        (action,) = self.actions or ["latency"]
        if action == "error":
            return f"{self.code}{' after the commit' if self.committed else ''}"
        return f"reset {self.reset}" if action == "reset" else action.replace("_max", "")

    @property
    def code(self) -> str:
        return self.error or CODE_OF_STATUS[self.status or 503]

    def waits(self, draw: Draw) -> float:
        if self.latency is None:
            return 0.0
        return self.latency(draw) if callable(self.latency) else self.latency

    def concerns(self, record: RecordedRequest) -> bool:
        return (
            self.account in (None, record.account)
            and (self.table is None or self.table.lower() == record.table.lower())
            and self.operation in (None, record.operation)
            and self.plan in (None, record.plan)
            and all(
                part in record.headers.get(name.lower(), "") for name, part in self.header.items()
            )
        )

    def acts_on(self, number: int, draw: Draw) -> bool:
        """Whether it acts on this request: the `number`th, counted from 1, that it applies to."""
        first = self.nth or 1
        count = self.count if self.count is not None or self.nth is None else 1
        if number < first or (count is not None and number >= first + count):
            return False
        return self.probability >= 1 or draw() < self.probability

    def _contradictions(self) -> Iterator[str]:
        """Why the rule means nothing, or could never act."""
        operation = self.operation
        seconds = self.latency if isinstance(self.latency, int | float) else 0
        numbers = (self.truncate, self.page_max, self.rate, self.retry_after, seconds)
        if self.error is not None and self.status not in (None, ERRORS[self.error].status):
            yield "status and error contradict each other"
        if "error" not in self.actions and (self.retry_after is not None or self.committed):
            yield "retry_after and committed belong to an error"
        if any(each is not None and each < 1 for each in (self.nth, self.count)):
            yield "nth and count are at least 1"
        if not 0 < self.probability <= 1:
            yield "probability is more than 0 and at most 1"
        if self.page_max == 0 and self.nth is None and self.count is None and self.probability >= 1:
            yield "an empty page every time would never end: give nth, count or probability"
        if any(each is not None and each < 0 for each in numbers):
            yield "truncate, page_max, rate, latency and retry_after are not negative"
        if operation not in (None, QUERY):
            if self.plan is not None:
                yield f"only {QUERY} has a plan, and the operation is {operation}"
            if self.page_max is not None:
                yield f"only {QUERY} has pages of entities, and the operation is {operation}"
        if (self.page_max or 0) > PAGE_ENTITIES_MAX:
            yield f"a page never has more than {PAGE_ENTITIES_MAX} entities, and page_max is {self.page_max}"
        if self.conflict and operation not in (None, *CONDITIONAL_WRITES):
            yield f"{operation} never has a condition on an ETag that conflict could break"
        if self.conflict and self.plan is not None:
            yield "a query, which has a plan, never has a condition on an ETag that conflict could break"
        if self.table is not None and operation in WITHOUT_TABLE:
            yield f"{operation} is not about one table"
        if self.share != "partition" and self.rate is None:
            yield "share belongs to a rate"


PARTS: Final = tuple(Member(part.name, **part.metadata) for part in fields(Rule))


def chance(seed: int, rule: int, number: int) -> Draw:
    """The random numbers of one rule for one request, always the same."""
    drawn = 0

    def draw() -> float:
        nonlocal drawn
        drawn += 1
        text = f"{seed} {rule} {number} {drawn}".encode()
        return int.from_bytes(blake2b(text, digest_size=6).digest()) / 2**48

    return draw
