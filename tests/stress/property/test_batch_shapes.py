"""Batches in every client's shape: their outcome is that of the same operations sent singly (wire 7).

Of a truncated or corrupted batch, nothing is carried out unless it is a complete change set.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stress.property.batch_shapes import BATCH, CHANGE_SET, SHAPES, Shape, batch_in
from stress.property.door import STATUS_OF_PART, Answer, Door, batch_etags, refusal
from stress.property.model import Refused, Value, Write
from stress.property.payloads import Request, write_request
from tablestone.model.errors import StorageError
from tablestone.wire.batch import BatchPart, parse_batch
from tablestone.wire.messages import RawRequest

TABLE = "Water"
PARTITION = "it's"
ROWS = ("", "'", "a b", "ä+&", "O'Brien", "100%", "😀", "--", "boundary")
TEXTS = (
    *("", "--", "boundary", "--boundary", "--batch_1", "--changeset_1--\r\n", "\n--\n", "}"),
    *(f"--{CHANGE_SET}", f"--{CHANGE_SET}--", f"\r\n--{CHANGE_SET}--\r\n", f"--{CHANGE_SET}x"),
    *(f"--{BATCH}", f"--{BATCH}--", f"\n--{BATCH}\n", "HTTP/1.1", "\r\n\r\n", "Content-Length: 3"),
)
FOREIGN_TAG = "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\""
OUTER = RawRequest("POST", b"/devstoreaccount1/$batch", b"", {})
KINDS = ("insert", "update", "merge", "insert_or_replace", "insert_or_merge", "delete")
SPOILED = 1_500

values: st.SearchStrategy[Value] = st.sampled_from(TEXTS).map(lambda text: ("Edm.String", text))
properties = st.dictionaries(
    st.sampled_from(("a", "Content", "größe")),
    values | st.just(("Edm.Double", 4.0)) | st.just(("Edm.Int64", 2**40)),
    max_size=3,
)


@st.composite
def operations(draw: st.DrawFn) -> list[Write]:
    """Operations on one partition and different rows; the first three rows exist."""
    rows = draw(st.lists(st.sampled_from(ROWS), min_size=1, max_size=5, unique=True))
    found = []
    for row in rows:
        kind = draw(st.sampled_from(KINDS))
        tag = draw(st.sampled_from(("*", "*", "*", FOREIGN_TAG)))
        if_match = tag if kind in ("update", "merge", "delete") else None
        given_properties = {} if kind == "delete" else draw(properties)
        found.append(Write(kind, (PARTITION, row), given_properties, if_match))
    return found


@contextmanager
def opened() -> Iterator[Door]:
    """A server with a table of three rows."""
    door = Door("memory")
    try:
        door.send(Request("POST", "/Tables", {}, f'{{"TableName":"{TABLE}"}}'.encode()))
        for row in ROWS[:3]:
            write = Write("insert", (PARTITION, row), {"a": ("Edm.String", "old")})
            door.send(write_request(TABLE, write)).require(201)
        yield door
    finally:
        assert door.close() == []


def everything(door: Door) -> bytes:
    return door.send(Request("GET", f"/{TABLE}()")).require(200).body


def refused_by(answer: Answer) -> Refused | None:
    try:
        batch_etags(answer)
    except Refused as error:
        return error
    return None


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@settings(max_examples=60)
@given(writes=operations())
def test_a_batch_does_what_its_operations_do_singly(shape: Shape, writes: list[Write]) -> None:
    """The same ETags and entities, or the error of the first operation that fails alone, with nothing done."""
    with opened() as singly, opened() as together:
        before = everything(together)
        answers = [singly.send(write_request(TABLE, write)) for write in writes]
        failed = [index for index, answer in enumerate(answers) if answer.status >= 400]
        answer = together.send(batch_in(shape, TABLE, writes))
        if failed:
            error = refused_by(answer)
            assert error is not None
            assert error.code == refusal(answers[failed[0]].body).code
            assert error.index == (failed[0] if len(writes) > 1 else 0)
            assert everything(together) == before
        else:
            assert batch_etags(answer) == [each.headers.get("etag") for each in answers]
            assert everything(together) == everything(singly)


def _parts(request: Request) -> list[BatchPart] | None:
    """The operations of the batch; None if it, or one of them, cannot be read."""
    try:
        batch = parse_batch(request.headers["Content-Type"].encode(), request.body, OUTER)
    except StorageError:
        return None
    return None if batch.ends_unreadable else list(batch.parts)


def _is_refused(answer: Answer) -> bool:
    """As a whole, or by the answer of its one failed operation (wire 7.3)."""
    if answer.status != 202:
        assert 400 <= answer.status < 500, answer
        assert json.loads(answer.body)["odata.error"]["code"] != "InternalError"
        return True
    return any(int(status) >= 400 for status in STATUS_OF_PART.findall(answer.body))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@settings(max_examples=6)
@given(writes=operations())
def test_a_batch_that_was_cut_off_is_refused_or_still_holds_its_whole_change_set(
    shape: Shape, writes: list[Write]
) -> None:
    """A batch cut at every byte. One that parses differently from the whole is sent, and must be refused as a whole."""
    whole = batch_in(shape, TABLE, writes)
    parts = _parts(whole)
    assert parts is not None
    assert len(parts) == len(writes)
    closed = whole.body.rindex(f"--{CHANGE_SET}--".encode()) + len(f"--{CHANGE_SET}--")
    with opened() as door:
        before = everything(door)
        for length in range(len(whole.body)):
            cut = Request("POST", "/$batch", whole.headers, whole.body[:length])
            read = _parts(cut)
            if read == parts:
                assert length >= closed
            else:
                assert read is None or _is_refused(door.send(cut)), whole.body[:length]
        assert everything(door) == before


def _inserts(texts: list[str], head: str, *, has_length: bool) -> list[bytes] | None:
    """The bodies of inserts of these texts, each with this text in its head; None if they cannot be read."""
    parts = ""
    for number, text in enumerate(texts):
        length = f"Content-Length: {len(text.encode())}\r\n" if has_length else ""
        parts += (
            f"--{CHANGE_SET}\r\nContent-Type: application/http\r\n\r\n"
            f"POST /{TABLE} HTTP/1.1\r\n{length}{head.format(number)}\r\n\r\n{text}\r\n"
        )
    body = (
        f"--{BATCH}\r\nContent-Type: multipart/mixed; boundary={CHANGE_SET}\r\n\r\n"
        f"{parts}--{CHANGE_SET}--\r\n--{BATCH}--\r\n"
    )
    headers = {"Content-Type": f"multipart/mixed; boundary={BATCH}"}
    found = _parts(Request("POST", "/$batch", headers, body.encode()))
    return None if found is None else [each.body for each in found]


@pytest.mark.parametrize("has_length", [False, True])
@given(texts=st.lists(st.sampled_from(TEXTS), min_size=2, max_size=5))
def test_parts_with_one_head_are_read_as_parts_with_different_heads(
    *, has_length: bool, texts: list[str]
) -> None:
    """The head of a part that is that of the part before it is not read again."""
    same = _inserts(texts, "Accept: */*", has_length=has_length)
    assert same == _inserts(texts, "X-Part: {}", has_length=has_length)


def _spoiled(random: Random, body: bytes) -> bytes:
    """Remove, add, double, move or replace a piece of a few bytes, or of whole lines."""
    if random.random() < 0.5:
        lines = body.splitlines(keepends=True)
        at, other = random.randrange(len(lines)), random.randrange(len(lines))
        changed = random.choice(
            [
                lines[:at] + lines[at + 1 :],
                [*lines[:at], lines[other], *lines[at:]],
                lines[:at] + lines[at:other] * 2 + lines[at:],
                [*lines[:at], lines[other], *lines[at + 1 :]],
            ]
        )
        return b"".join(changed)
    at = random.randrange(len(body))
    other = random.randrange(at, min(len(body), at + 40))
    noise = random.choice(
        [
            *(b"\r", b"\n", b"\r\n", b"--", b" ", b"\0", b":", b"}", b"%", b"\xff", b"\t", b"?"),
            *(f"--{CHANGE_SET}".encode(), f"--{BATCH}--\r\n".encode(), b"Content-Length: 99\r\n"),
        ]
    )
    return random.choice(
        [body[:at] + body[other:], body[:at] + noise + body[at:], body[:at] + noise + body[other:]]
    )


@pytest.mark.slow
def test_a_spoiled_batch_does_all_that_is_answered_or_nothing() -> None:
    """Never an internal error, never half a batch: there are as many entities as answered operations."""
    random = Random(11)
    writes = [Write("insert", (PARTITION, row), {"a": ("Edm.String", "new")}) for row in "xyz"]
    refused = 0
    door = Door("memory")
    door.send(Request("POST", "/Tables", {}, f'{{"TableName":"{TABLE}"}}'.encode())).require(201)
    for number in range(SPOILED):
        whole = batch_in(SHAPES[number % len(SHAPES)], TABLE, writes)
        spoiled = Request("POST", "/$batch", whole.headers, _spoiled(random, whole.body))
        answer = door.send(spoiled)
        stored = json.loads(everything(door))["value"]
        if _is_refused(answer):
            refused += 1
            assert stored == [], (spoiled.body, answer)
            continue
        assert len(stored) == len(STATUS_OF_PART.findall(answer.body)), (spoiled.body, answer)
        for entity in stored:
            key = (entity["PartitionKey"], entity["RowKey"])
            door.send(write_request(TABLE, Write("delete", key, {}, "*"))).require(204)
    assert door.close() == []
    assert SPOILED / 4 < refused < SPOILED
