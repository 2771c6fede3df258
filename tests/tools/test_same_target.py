"""Whether `copy --follow` still has its target: each way in which one can differ, at three moments."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tablestone.model.keys import EntityKey
from tablestone.testing import TableStorage
from tablestone.tools import copying, following, odata, positions, same_target
from tablestone.tools.client import Operation, Query, TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.copying import TableCopy
from tablestone.tools.errors import TransferFailed, Unreachable
from tablestone.tools.following import Follower
from tablestone.tools.positions import KEYS_LENGTH_MAX, TABLE, Followed
from tablestone.tools.resume_journal import Journal
from tablestone.tools.same_target import Evidence, Judgement, Verdict, judge
from tools.data_tools import DataTools, entity

SAME, AGAIN, ASKED = Verdict

VERDICTS = [
    ("a key is there", Evidence(keys=8, is_there=True), SAME),
    (
        "a later key is there, and nothing older",
        Evidence(keys=8, is_there=True, unnamed=False),
        ASKED,
    ),
    ("the feed deletes all", Evidence(keys=2, explained=2), SAME),
    ("the feed deletes one of two", Evidence(keys=2, explained=1), ASKED),
    ("one of two, and it is empty", Evidence(keys=2, explained=1, is_empty=True), AGAIN),
    ("all, and what it does not name is there", Evidence(keys=1, explained=1, unnamed=True), SAME),
    ("all, and that is not there", Evidence(keys=1, explained=1, unnamed=False), ASKED),
    ("and it is empty", Evidence(keys=1, explained=1, unnamed=False, is_empty=True), AGAIN),
    ("there were none, and it is empty", Evidence(is_empty=True), SAME),
    ("there were none", Evidence(), SAME),
    ("there is no table", Evidence(exists=False), AGAIN),
    ("no table, with keys", Evidence(exists=False, keys=3), AGAIN),
    ("no table, and the feed deletes it", Evidence(exists=False, keys=3, is_deleted=True), SAME),
    ("another table, and the feed deletes it", Evidence(keys=3, is_deleted=True), SAME),
    ("the copy has not begun", Evidence(is_begun=False), ASKED),
    ("not begun, and it is empty", Evidence(is_begun=False, is_empty=True), AGAIN),
    ("not begun, and no table", Evidence(is_begun=False, exists=False), AGAIN),
]


@pytest.mark.parametrize(
    ("evidence", "verdict"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS]
)
def test_the_verdict_on_a_table(evidence: Evidence, verdict: Verdict) -> None:
    assert judge(evidence) is verdict


class Pair:
    """A source that keeps changes and a target, in this process, and the command between them."""

    def __init__(self, tools: DataTools, source: TableStorage, target: TableStorage) -> None:
        self.tools, self.source, self.target = tools, source, target
        self.words = ["copy", "--follow", "--until-caught-up", "--quiet"]
        for flag, name, side in (("--from", "a", source), ("--to", "b", target)):
            (tools.directory / name).write_text(side.connection_string)
            self.words += [flag, f"@{tools.directory / name}"]

    def follow(self, *more: str, status: int | None = 0) -> str:
        return self.tools.run(*self.words, *more, status=status).stderr

    def require_equal(self) -> None:
        places = [f"@{self.tools.directory / name}" for name in "ab"]
        ran = self.tools.run("diff", *places, "--quiet", status=None)
        assert ran.status == 0, ran.stdout

    def seed(self, storage: TableStorage, table: str, *rows: str, **properties: Any) -> None:
        storage.seed({table: [entity("p", row, **properties) for row in rows]})

    def delete(self, storage: TableStorage, table: str, *rows: str) -> None:
        with TableEndpoint(parse_connection_string(storage.connection_string)) as endpoint:
            for row in rows:
                endpoint.write(table, Operation("DELETE", EntityKey("p", row), if_match="*"))


@pytest.fixture
def pair(tools: DataTools) -> Iterator[Pair]:
    with TableStorage(keep_changes=True) as source, TableStorage() as target:
        yield Pair(tools, source, target)


TABLES = ("Large", "Orders")
ROWS = [f"{n:03}" for n in range(40)]


def nothing(_pair: Pair) -> None:
    """The target is sound."""


def emptied(pair: Pair) -> None:
    for table, entities in pair.target.dump().items():
        if table != TABLE:
            pair.delete(pair.target, table, *(each["RowKey"] for each in entities))


def lost(pair: Pair) -> None:
    for table in set(TABLES) & pair.target.dump().keys():
        pair.target.delete_table(table)


def made_anew(pair: Pair) -> None:
    lost(pair)
    pair.target.seed({table: [] for table in TABLES})


def made_anew_with_its_own(pair: Pair) -> None:
    lost(pair)
    for table in TABLES:
        pair.seed(pair.target, table, "its own")


def exchanged_for_an_empty_one(pair: Pair) -> None:
    pair.target.reset()


def exchanged(pair: Pair) -> None:
    pair.target.reset()
    made_anew_with_its_own(pair)


def without_its_position(pair: Pair) -> None:
    pair.target.delete_table(TABLE)


def rename_partition(pair: Pair, part: int, text: str) -> None:
    rows = pair.target.dump()[TABLE]
    pair.target.delete_table(TABLE)
    for row in rows:
        parts = row["PartitionKey"].split(".")
        if len(parts) == 3:
            parts[part] = text
        row["PartitionKey"] = ".".join(parts)
    pair.target.seed({TABLE: rows})


def of_another_account(pair: Pair) -> None:
    rename_partition(pair, 1, "other")


def of_another_source(pair: Pair) -> None:
    rename_partition(pair, 0, "other")


NO_POSITION = "has entities, and the target has no position of this copy"
NOT_FOLLOWED = "has entities, and is not the table that was followed"
WAYS: list[tuple[Callable[[Pair], None], str]] = [
    (nothing, ""),
    (emptied, ""),
    (lost, ""),
    (made_anew, ""),
    (made_anew_with_its_own, NOT_FOLLOWED),
    (exchanged_for_an_empty_one, ""),
    (exchanged, NO_POSITION),
    (without_its_position, NO_POSITION),
    (of_another_account, "has entities, and the position there is of another account"),
    (of_another_source, "has entities, and the position there is of another source"),
]


def in_the_first_copy(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the second of three pages."""
    pair.source.seed({"Large": [entity("p", f"{n:05}") for n in range(2100)]})
    real, calls = TableCopy._save, 0

    def save(copy: TableCopy, *arguments: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        real(copy, *arguments, **named)
        if calls == 3:
            raise TransferFailed("killed")

    with monkeypatch.context() as patch:
        patch.setattr(copying, "PAGES_PER_CHECKPOINT", 1)
        patch.setattr(TableCopy, "_save", save)
        assert "killed" in pair.follow(status=1)
    pair.delete(pair.source, "Large", "00001", "01999", "02050")


def caught_up(pair: Pair, _monkeypatch: pytest.MonkeyPatch) -> None:
    pair.follow()
    pair.seed(pair.source, "Orders", "later")
    pair.follow()


def with_changes_meanwhile(pair: Pair, _monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys that are remembered of a table are deleted, and some of the other."""
    pair.follow()
    pair.delete(pair.source, "Orders", *ROWS[-8:])
    pair.delete(pair.source, "Large", *ROWS[-4:])
    for row in ("new", ROWS[-1], ROWS[3]):
        pair.seed(pair.source, "Orders", row, N=2)


@pytest.mark.parametrize(
    "moment",
    [pytest.param(in_the_first_copy, marks=pytest.mark.slow), caught_up, with_changes_meanwhile],
)
@pytest.mark.parametrize(("way", "reason"), WAYS, ids=[way.__name__ for way, _ in WAYS])
def test_a_target_that_differs_is_made_equal_or_refused(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[Pair], None],
    reason: str,
    moment: Callable[[Pair, pytest.MonkeyPatch], None],
) -> None:
    for table in TABLES:
        pair.seed(pair.source, table, *ROWS, N=1)
    moment(pair, monkeypatch)
    way(pair)
    for more in () if not reason else ((), ()):
        assert reason in pair.follow(*more, status=2)
    if not reason:
        pair.follow()
        pair.require_equal()
    else:
        pair.follow("--on-conflict", "replace")
        for table, entities in pair.source.dump().items():
            own = [each for each in pair.target.dump()[table] if each["RowKey"] != "its own"]
            assert own == entities or moment is not caught_up


def test_an_older_target_goes_on_from_its_older_position(pair: Pair) -> None:
    pair.seed(pair.source, "Orders", *ROWS)
    pair.follow()
    older = pair.target.snapshot()
    pair.seed(pair.source, "Orders", "later")
    pair.delete(pair.source, "Orders", *ROWS)
    pair.follow()
    pair.target.restore(older)
    pair.follow()
    pair.require_equal()


def test_keys_that_are_gone_are_replaced(pair: Pair) -> None:
    """A queue: each key that is remembered is deleted soon, by the feed that was applied."""
    pair.seed(pair.source, "Orders", "old")
    pair.follow()
    for n in range(10):
        pair.seed(pair.source, "Orders", str(n))
        pair.delete(pair.source, "Orders", str(n))
        pair.follow()
    emptied(pair)
    pair.follow()
    pair.require_equal()


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        (lost, "is not at"),
        (exchanged_for_an_empty_one, "is not at"),
        (emptied, "is not the table any more that was followed"),
        (made_anew, "is not the table any more that was followed"),
        (without_its_position, "The position of this run at"),
        (exchanged, "The position of this run at"),
    ],
)
def test_a_target_that_changes_under_a_run(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, way: Callable[[Pair], None], sentence: str
) -> None:
    """After the look at the start, and before a write: the run does not say that it has caught up."""
    for table in TABLES:
        pair.seed(pair.source, table, *ROWS)
    pair.follow()
    pair.seed(pair.source, "Orders", "later")

    def carry(*_: object) -> None:
        way(pair)

    with monkeypatch.context() as patch:
        patch.setattr(following, "carry_expiry", carry)
        told = pair.follow(status=1)
    assert sentence in told
    if way not in (without_its_position, exchanged):
        # What was written since is not known, where no table was empty.
        told = pair.follow("--on-conflict", "replace")
        pair.require_equal()


@pytest.mark.parametrize("way", [emptied, made_anew])
def test_a_target_is_known_by_what_was_there_before_a_large_change(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, way: Callable[[Pair], None]
) -> None:
    """More entities than are remembered come at once, after the target lost all others."""
    for table in TABLES:
        pair.seed(pair.source, table, *ROWS)
    pair.follow()
    first = [f"0{n}" for n in range(12)]  # before all others in the order of keys
    pair.seed(pair.source, "Orders", *first)
    with monkeypatch.context() as patch:
        patch.setattr(following, "carry_expiry", lambda *_: way(pair))
        told = pair.follow(status=1)
    assert "is not the table any more that was followed" in told
    assert "caught up" not in told
    pair.follow("--on-conflict", "replace")
    pair.require_equal()


def keys_deleted(pair: Pair) -> None:
    pair.delete(pair.source, "Orders", *ROWS[-8:])


def lowest_keys_rewritten_too(pair: Pair) -> None:
    keys_deleted(pair)
    pair.seed(pair.source, "Orders", *ROWS[: same_target.SAMPLE], N=2)


def keys_rewritten(pair: Pair) -> None:
    pair.seed(pair.source, "Orders", *ROWS[-8:], N=2)


@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("change", [keys_deleted, lowest_keys_rewritten_too, keys_rewritten])
def test_an_emptied_table_is_not_known_by_what_the_feed_does_to_its_keys(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, change: Callable[[Pair], None], *, expires: bool
) -> None:
    monkeypatch.setattr(same_target, "SAMPLE", 16)
    pair.seed(pair.source, "Orders", *ROWS)
    pair.follow()
    if expires:
        pair.target.set_expiry("Orders", after=timedelta(days=30))
    emptied(pair)
    change(pair)
    pair.follow()
    pair.require_equal()


def test_an_emptied_table_of_which_nothing_is_remembered(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that follows finds none of its keys, and forgets them as the source deletes them."""
    pair.seed(pair.source, "Orders", *ROWS)
    pair.follow()
    emptied(pair)
    keys_deleted(pair)
    with monkeypatch.context() as patch:
        patch.setattr(
            Judgement, "verdicts", lambda _, tables, *__, **___: [Verdict.SAME] * len(tables)
        )
        pair.follow()
    pair.follow()
    pair.require_equal()


def test_remembered_keys_fit_into_a_property() -> None:
    keys = {EntityKey("é" * 1024, f"{n}" + "é" * 1000): "W/\"datetime''\"" for n in range(8)}
    members = Followed("Orders", keys=keys).members()
    assert len(members["Keys"]) <= KEYS_LENGTH_MAX
    kept = list(Followed.from_members(members).keys)
    assert kept == list(keys)[-len(kept) :] != []


def test_a_table_of_the_user_is_no_place_for_positions(pair: Pair) -> None:
    pair.seed(pair.target, TABLE, "a row of the user")
    pair.seed(pair.source, "Orders", "1")
    assert f"has a table {TABLE} of its own" in pair.follow(status=2)
    pair.follow("--position-table", "Elsewhere")
    assert {"Elsewhere", "Orders", TABLE} == pair.target.dump().keys()
    pair.seed(pair.source, "Elsewhere", "a row of the user")
    assert "has a table Elsewhere of its own" in pair.follow(
        "--position-table", "Elsewhere", status=1
    )


def test_a_chain_and_a_way_back_leave_positions_out(pair: Pair, tools: DataTools) -> None:
    """From A to B to C, and from B to A."""
    with TableStorage(keep_changes=True) as middle, TableStorage() as last:
        first = Pair(tools, pair.source, middle)
        pair.seed(pair.source, "Orders", "1")
        first.follow()
        second = Pair(tools, middle, last)
        second.follow("--position-table", "Here")
        back = Pair(tools, middle, pair.source)
        back.follow("--on-conflict", "replace")
        pair.seed(pair.source, "Orders", "2")
        Pair(tools, pair.source, middle).follow()
        Pair(tools, middle, last).follow("--position-table", "Here")
        assert last.dump().keys() == {"Orders", "Here"}
        assert len(last.dump()["Orders"]) == 2
        Pair(tools, middle, pair.source).follow("--on-conflict", "replace")
        for one, other in ((pair.source, middle), (middle, last)):
            Pair(tools, one, other).require_equal()
        tools.run("copy", *Pair(tools, middle, last).words[4:], "--on-conflict", "replace")
        assert last.dump().keys() == {"Orders", "Here"}


def test_positions_are_neither_copied_nor_exported_by_name(pair: Pair, tmp_path: Path) -> None:
    pair.seed(pair.source, "Orders", "1")
    pair.follow()
    text = pair.target.connection_string
    for words in (
        ("copy", "--from", f"@{pair.tools.directory / 'b'}", "--to", "local", TABLE),
        ("export", TABLE, str(tmp_path / "a.jsonl"), "--connection-string", text),
    ):
        ran = pair.tools.run(*words, status=2)
        assert f"{TABLE} holds the positions of `copy --follow`" in ran.stderr


def test_the_rows_say_what_was_copied(pair: Pair) -> None:
    pair.seed(pair.source, "Orders", *ROWS)
    pair.follow()
    with TableEndpoint(parse_connection_string(pair.target.connection_string)) as endpoint:
        rows = {raw["RowKey"]: raw for raw in endpoint.page(Query(TABLE), None).entities}
        assert set(rows) == {"positions", "position", "table orders"}
        assert (rows["table orders"]["State"], rows["position"]["Ended"]) == ("copied", True)
        for key, etag in Followed.from_members(rows["table orders"]).keys.items():
            found = endpoint.get("Orders", key)
            assert found is not None
            assert found[odata.ETAG] == etag


@contextmanager
def following_between(pair: Pair, journal: Path) -> Iterator[tuple[TableEndpoint, Follower]]:
    """A follower in this process, and its endpoint of the target."""
    source, target, kept = (
        TableEndpoint(parse_connection_string(each.connection_string))
        for each in (pair.source, pair.target, pair.target)
    )
    with source, target, kept, closing(Journal(journal, {})) as opened:
        follower = Follower(source, target, (), parallel=1, journal=opened, tell=print, kept=kept)
        with closing(follower):
            yield target, follower


def test_the_first_write_after_a_long_stop_is_not_sent(pair: Pair, tmp_path: Path) -> None:
    """Between the renewal and the write, another run took over."""
    pair.seed(pair.source, "Orders", "1")
    pair.follow()
    with following_between(pair, tmp_path / "journal") as (target, follower):
        assert follower.start() == []
        follower.positions._renewed -= 60
        follower.positions._ended.set()  # the thread that renews stands still too
        rows = {each["RowKey"]: each for each in pair.target.dump()[TABLE]}
        pair.target.seed({TABLE: [{**rows["position"], "Run": "another", "Ended": False}]})
        write = Operation("PUT", EntityKey("p", "late"), odata.body_of(entity("p", "late")))
        for send in (
            lambda: target.write("Orders", write),
            lambda: target.transact("Orders", [write]),
            lambda: target.create_table("Late"),
        ):
            with pytest.raises(TransferFailed, match="or another run follows"):
                send()
    assert [each["RowKey"] for each in pair.target.dump()["Orders"]] == ["1"]


def test_lines_that_are_left_out_save_no_position_before_it_is_renewed(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each position would be a line in the feed of the way back, whose position would be one here."""
    monkeypatch.setattr(positions, "SAVE_SECONDS", 0.02)
    pair.seed(pair.source, "Orders", "1")
    pair.follow()
    with following_between(pair, tmp_path / "journal") as (_, follower):
        follower.start()

        def saved() -> str:
            rows = {each["RowKey"]: each for each in pair.target.dump()[TABLE]}
            return str(rows["position"]["Cursor"])

        def becomes(cursor: str) -> None:
            until = time.monotonic() + 30
            while saved() != cursor:
                assert time.monotonic() < until
                time.sleep(0.05)

        before = saved()
        follower.positions.cursor = "later"
        time.sleep(0.3)
        assert saved() == before
        follower.positions._renewed -= 60
        becomes("later")
        follower.positions.cursor, follower.positions.applied = before, "2026-11-28T12:00:00Z"
        becomes(before)


def test_a_position_is_written_again_if_an_earlier_one_was_done_without_an_answer(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.seed(pair.source, "Orders", "1")
    pair.follow()
    with following_between(pair, tmp_path / "journal") as (_, follower):
        follower.start()
        real = TableEndpoint.transact

        def lost(endpoint: TableEndpoint, *arguments: Any) -> None:
            real(endpoint, *arguments)
            raise Unreachable("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(TableEndpoint, "transact", lost)
            with pytest.raises(Unreachable):
                follower.positions._write()
        follower.positions.cursor = "later"
        follower.positions.save()
        rows = {each["RowKey"]: each for each in pair.target.dump()[TABLE]}
        assert rows["position"]["Cursor"] == "later"
