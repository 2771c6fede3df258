"""Expiry in a storage of the test kit: its clock decides, clients see it, and the data tools use the policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.data.tables import TableClient

from tablestone.cli.main import main
from tablestone.model.expiry import ExpiryPolicy
from tablestone.tables.account_incarnation import Named
from tablestone.tables.expiry_sweeping import ExpirySweeper
from tablestone.testing import StorageRefused, TableStorage
from tablestone.testing.storage_service import StorageService
from tablestone.tools.client import TableEndpoint
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.copying import Side, carry_expiry
from tablestone.tools.errors import ServiceError
from tablestone.tools.own_forms import change_expiry

HOUR: Final = timedelta(hours=1)


@pytest.fixture
def storage() -> Iterator[TableStorage]:
    with TableStorage(keep_changes=True) as made:
        yield made


def sessions(storage: TableStorage) -> TableClient:
    client = TableClient.from_connection_string(storage.connection_string, "Sessions")
    client.create_table()
    return client


def rows(table: TableClient) -> list[str]:
    return [each["RowKey"] for each in table.list_entities()]


def entity(row: str, **properties: Any) -> dict[str, Any]:
    return {"PartitionKey": "p", "RowKey": row, **properties}


def test_the_clock_of_the_storage_lets_entities_expire(storage: TableStorage) -> None:
    table = sessions(storage)
    storage.set_expiry("Sessions", after=HOUR)
    table.create_entity(entity("a"))
    with pytest.raises(ResourceExistsError):
        table.create_entity(entity("a"))
    storage.clock.advance(minutes=59)
    assert rows(table) == ["a"]
    one = table.query_entities("PartitionKey eq 'p' and RowKey eq 'a'", results_per_page=1)
    assert [each["RowKey"] for each in one] == ["a"]
    storage.clock.advance(minutes=1)
    assert rows(table) == []
    with pytest.raises(ResourceNotFoundError):
        table.get_entity("p", "a")
    table.create_entity(entity("a", again=True))
    assert rows(table) == ["a"]
    storage.clock.advance(hours=2)
    storage.set_expiry("Sessions")
    assert rows(table) == ["a"]


@pytest.mark.parametrize("kind", [datetime, int, float])
def test_what_an_sdk_sends_as_a_time(storage: TableStorage, kind: type) -> None:
    table = sessions(storage)
    storage.set_expiry("Sessions", property="expires")
    for row, minutes in (("past", -1), ("soon", 5)):
        moment = datetime.now(UTC) + timedelta(minutes=minutes)
        value: Any = moment if kind is datetime else kind(moment.timestamp())
        table.create_entity(entity(row, expires=value))
    table.create_entity(entity("text", expires="2012-01-01T00:00:00Z"))
    assert rows(table) == ["soon", "text"]
    storage.clock.advance(minutes=6)
    assert rows(table) == ["text"]


def test_bad_policies_are_refused(storage: TableStorage) -> None:
    sessions(storage)
    with pytest.raises(StorageRefused, match="There is no table Other in account"):
        storage.set_expiry("Other", after=HOUR)
    for given in (
        {"after": timedelta()},
        {"after": timedelta.max},
        {"after": HOUR, "property": "expires"},
    ):
        with pytest.raises(StorageRefused, match="Give one of both"):
            storage.set_expiry("Sessions", **given)
    for name in ("", "a b", "PartitionKey", "RowKey", "Timestamp"):
        with pytest.raises(StorageRefused, match="or the name of a property"):
            storage.set_expiry("Sessions", property=name)
    with pytest.raises(TypeError, match=r"after is a timedelta, such as .* not 24\."):
        storage.set_expiry("Sessions", after=24)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="property is the name of a property, not 3"):
        storage.set_expiry("Sessions", property=3)  # type: ignore[arg-type]


@pytest.fixture
def endpoint(storage: TableStorage) -> Iterator[TableEndpoint]:
    with TableEndpoint(parse_connection_string(storage.connection_string)) as opened:
        yield opened


def test_the_policy_is_on_the_wire_while_there_is_one(
    storage: TableStorage, endpoint: TableEndpoint
) -> None:
    sessions(storage)
    assert endpoint.expiry("Sessions") is None
    assert endpoint.expiry("Other") is None
    for policy in (ExpiryPolicy(after=3600), ExpiryPolicy(property_name="expires")):
        after = None if policy.after is None else timedelta(seconds=policy.after)
        storage.set_expiry("Sessions", after=after, property=policy.property_name)
        assert endpoint.expiry("Sessions") == policy


@pytest.mark.parametrize(
    "end", [{"status": 503}, pytest.param({"reset": "before"}, marks=pytest.mark.slow)]
)
def test_a_policy_that_cannot_be_read_is_not_taken_for_none(
    storage: TableStorage, tmp_path: Path, run: Run, end: dict[str, Any]
) -> None:
    sessions(storage)
    storage.set_expiry("Sessions", after=HOUR)
    with TableStorage() as other:
        sessions(other)
        places = places_of(tmp_path, storage, other)
        storage.faults.add(operation="GetTableExpiry", **end)
        for words in (("diff", *places), ("copy", "--from", places[0], "--to", places[1])):
            ended = run(*words, "Sessions")
            assert ended.status == 1, ended
            assert ended.errors[-1].startswith(("tablestone: http", "tablestone: The source http"))


def test_a_policy_that_cannot_be_given_ends_the_copy(
    storage: TableStorage, tmp_path: Path, run: Run
) -> None:
    """Before the entities: afterwards the target would take no policy."""
    sessions(storage).create_entity(entity("a"))
    storage.set_expiry("Sessions", after=HOUR)
    with TableStorage() as other:
        places = places_of(tmp_path, storage, other)
        words = ("copy", "--from", places[0], "--to", places[1], "Sessions")
        other.faults.add(operation="SetTableExpiry", status=503)
        assert run(*words).status == 1
        assert other.dump() == {"Sessions": []}
        other.faults.clear()
        assert run(*words).status == 0
        with TableEndpoint(parse_connection_string(other.connection_string)) as target:
            assert target.expiry("Sessions") == ExpiryPolicy(after=3600)


class Ended(NamedTuple):
    status: int
    lines: list[str]
    errors: list[str]


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process, with journals of its own."""
    monkeypatch.setenv("TABLESTONE_JOURNALS", str(tmp_path / "journals"))

    def run_command(*words: str) -> Ended:
        status = main([*words])
        out, err = capsys.readouterr()
        return Ended(status, out.splitlines(), err.splitlines())

    return run_command


def test_diff_and_copy_know_what_the_source_hides(
    storage: TableStorage, tmp_path: Path, run: Run
) -> None:
    """Of a property. Until an expired entity is swept, the other side still shows it."""
    with TableStorage() as other:
        here, there = sessions(storage), sessions(other)
        ends = datetime.now(UTC) - timedelta(minutes=1)
        for table in (here, there):
            table.create_entity(entity("dead", expires=ends))
            table.create_entity(entity("live", n=1))
        storage.set_expiry("Sessions", property="expires")
        places = places_of(tmp_path, storage, other)
        ended = run("diff", *places, "Sessions", "--json")
        found = json.loads(ended.lines[0])
        assert found["differences"] == []
        assert (found["left_out"], found["expiry"]) == (1, ["at the time in expires", ""])
        assert ended.status == 0
        assert run("diff", *places, "Sessions").lines == [
            "Sessions: 1 entity on both sides, and they are equal.",
            "  entities expire at the time in expires in A",
            "  1 left out: expired on one side, and not yet on the other",
            "  1 more entity has expired in A: hidden, and left out.",
        ]
        there.create_entity(entity("more", n=1))
        ended = run("diff", *places, "Sessions", "--json")
        assert ended.status == 1
        (found,) = json.loads(ended.lines[0])["differences"]
        assert found["key"] == ["p", "more"]
        there.delete_entity(entity("more"))
        between = ("--from", places[0], "--to", places[1])
        copied = run("copy", *between, "Sessions", "--on-conflict", "replace")
        assert copied.status == 0
        assert (
            "Sessions: entities expire at the time in expires at the source. The target shows no policy."
            in copied.errors
        )
        assert "    1 left out: expired on one side, and not yet on the other" in copied.lines
        assert "    1 more entity has expired at the source: hidden, and left out." in copied.lines


def test_transfers_say_what_they_leave_out(
    storage: TableStorage, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden entities and indexes, also where nothing is compared; a policy that is suspended hides nothing."""
    table = sessions(storage)
    for row in ("a", "b"):
        table.create_entity(entity(row, expires=1))
    table.create_entity(entity("live", n=1))
    storage.set_expiry("Sessions", property="expires")
    storage.create_index("Sessions", "n")
    here = parse_connection_string(storage.connection_string)
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", storage.connection_string)
    said = "2 more entities have expired: hidden, and left out."
    exported = run("export", "Sessions", str(tmp_path / "all.jsonl"), "--quiet")
    assert exported.lines[1:] == [said]
    assert said in run("export", "Sessions", "-").errors
    with TableStorage() as other:
        places = places_of(tmp_path, storage, other)
        between = ("--from", places[0], "--to", places[1], "Sessions")
        no_index = "  Indexes are not copied, and the target has none on: n."
        copied = run("copy", *between, "--no-verify").lines
        assert {f"  {said}", no_index} <= {*copied}
        verified = run("copy", *between, "--restart", "--on-conflict", "replace").lines
        where = said.replace("expired:", "expired at the source:")
        assert {f"    {where}", no_index} <= {*verified}
        other.create_index("Sessions", "n")
        assert no_index not in run("copy", *between, "--on-conflict", "replace").lines
        followed = run(
            "copy", *between, "--follow", "--until-caught-up", "--on-conflict", "replace"
        )
        assert f"  {said}" in followed.errors
    with TableEndpoint(here) as endpoint:
        change_expiry(endpoint, "Sessions", {"suspended": True})
    again = run("export", "Sessions", str(tmp_path / "again.jsonl"), "--json").lines
    assert (json.loads(again[0])["hidden"], json.loads(again[0])["entities"]) == (0, 3)


@pytest.mark.parametrize("own", ["refused", "older"])
def test_a_server_that_does_not_count_is_said(
    storage: TableStorage, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    sessions(storage).create_entity(entity("a", expires=1))
    storage.set_expiry("Sessions", property="expires")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", storage.connection_string)
    ends = {
        "refused": ServiceError(403, "SecureConnectionRequired", ""),
        "older": ServiceError(400, "InvalidQueryParameterValue", ""),
    }

    def own_form(*_given: Any, **_more: Any) -> Any:
        raise ends[own]

    monkeypatch.setattr(TableEndpoint, "own_form", own_form)
    exported = run("export", "Sessions", str(tmp_path / "all.jsonl"))
    assert exported.lines[-1].startswith("Entities that have expired are hidden, and left out.")


def places_of(tmp_path: Path, *sides: TableStorage) -> list[str]:
    places = []
    for number, side in enumerate(sides):
        (tmp_path / str(number)).write_text(side.connection_string)
        places.append(f"@{tmp_path / str(number)}")
    return places


def test_diff_says_why_a_side_may_show_less(
    storage: TableStorage, tmp_path: Path, run: Run
) -> None:
    """By Timestamps: which ones it hides, only the endpoint knows."""
    with TableStorage() as other:
        for side in (storage, other):
            sessions(side).create_entity(entity("old"))
        other.set_expiry("Sessions", after=timedelta(days=7))
        other.clock.advance(days=8)
        ended = run("diff", *places_of(tmp_path, storage, other), "Sessions")
        assert ended.status == 1
        assert ended.lines[:2] == [
            "Sessions: 1 differs; 1 entity in A, 0 in B",
            "  entities expire 7d after their Timestamp in B",
        ]


@pytest.mark.parametrize("follow", [(), ("--follow", "--until-caught-up")])
@pytest.mark.parametrize("policy", [{"after": HOUR}, {"property": "expires"}])
@pytest.mark.parametrize("is_there", [False, True])
def test_copy_brings_the_policy(
    storage: TableStorage,
    tmp_path: Path,
    run: Run,
    follow: tuple[str, ...],
    policy: dict[str, Any],
    *,
    is_there: bool,
) -> None:
    """Before the entities, so also to an empty table that a killed run made; one that is suspended stays so."""
    sessions(storage).create_entity(entity("a"))
    storage.set_expiry("Sessions", **policy)
    with TableStorage() as other:
        if is_there:
            sessions(other)
        places = places_of(tmp_path, storage, other)
        words = ("copy", "--from", places[0], "--to", places[1], *follow)
        ended = run(*words, "Sessions")
        assert ended.status == 0, ended
        assert "The target" not in " ".join(ended.errors)
        with TableEndpoint(parse_connection_string(other.connection_string)) as target:
            found = target.expiry("Sessions")
            assert found is not None
            assert found.members().keys() == {*policy, "suspended"}
            # What the target has stays.
            other.set_expiry("Sessions", after=timedelta(days=1))
            ended = run(*words, "--on-conflict", "replace", "--restart", "Sessions")
            assert "The target has another policy: 1d after their Timestamp." in " ".join(
                ended.errors
            )
            assert target.expiry("Sessions") == ExpiryPolicy(after=86_400)


def test_copy_brings_a_suspended_policy(
    storage: TableStorage, endpoint: TableEndpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    sessions(storage)
    suspended = ExpiryPolicy(property_name="expires", suspended=True)
    endpoint.offer_expiry("Sessions", suspended)
    with TableStorage() as other:
        table = sessions(other)
        with TableEndpoint(parse_connection_string(other.connection_string)) as target:
            sides = Side("source", endpoint, 1), Side("target", target, 1)
            carry_expiry(*sides, "Sessions")
            assert (target.expiry("Sessions"), capsys.readouterr().err) == (suspended, "")
            other.set_expiry("Sessions")
            table.create_entity(entity("a"))
            carry_expiry(*sides, "Sessions")
            assert target.expiry("Sessions") is None
    assert capsys.readouterr().err == (
        "Sessions: entities expire at the time in expires (suspended) at the source. The target shows no policy.\n"
    )


def test_follow_brings_the_policy_of_a_table_that_is_made_later(
    storage: TableStorage, tmp_path: Path, run: Run
) -> None:
    with TableStorage() as other:
        places = places_of(tmp_path, storage, other)
        words = ("copy", "--from", places[0], "--to", places[1], "--follow", "--until-caught-up")
        assert run(*words).status == 0
        table = sessions(storage)
        assert run(*words).errors[-1] == "follow: 1 change, caught up"
        storage.set_expiry("Sessions", after=HOUR)
        table.create_entity(entity("a"))
        assert run(*words, "--quiet").errors == []
        with TableEndpoint(parse_connection_string(other.connection_string)) as target:
            assert target.expiry("Sessions") == ExpiryPolicy(after=3600)


@pytest.mark.parametrize("policy", [HOUR, 2 * HOUR, None], ids=["the same", "a longer", "none"])
def test_follow_deletes_what_expires_whatever_policy_the_target_has_now(
    storage: TableStorage, tmp_path: Path, run: Run, policy: timedelta | None
) -> None:
    """The target's policy may change before it removes the entity by itself."""
    table = sessions(storage)
    storage.set_expiry("Sessions", after=HOUR)
    table.create_entity(entity("a"))
    with TableStorage() as other:
        places = places_of(tmp_path, storage, other)
        words = ("copy", "--from", places[0], "--to", places[1], "--follow", "--until-caught-up")
        assert run(*words).status == 0
        other.set_expiry("Sessions", after=policy)
        storage.clock.advance(hours=1)
        storage.begin(sweep).result()
        assert storage.dump()["Sessions"] == []
        assert run(*words).status == 0
        assert other.dump()["Sessions"] == []


async def sweep(service: StorageService) -> None:
    state, clock = service.state, service.clock
    catalog = state.tables.catalog

    async def found(name: str) -> Named:
        return Named(name, await catalog.incarnations.current(name))

    sweeper = ExpirySweeper(
        state.engine, catalog, found, clock.ticks, clock.elapsed_seconds, "test"
    )
    async for _ in sweeper.steps(0):
        pass


def test_the_last_line_says_caught_up(storage: TableStorage, tmp_path: Path, run: Run) -> None:
    """Also soon after a line that says how far behind: the feed has several pages."""
    sessions(storage)
    with TableStorage() as other:
        places = places_of(tmp_path, storage, other)
        words = ("copy", "--from", places[0], "--to", places[1], "--follow", "--until-caught-up")
        assert run(*words).status == 0
        storage.seed({"Sessions": [entity(f"{number:04}") for number in range(1_100)]})
        assert run(*words).errors[-1] == "follow: 1,100 changes, caught up"
