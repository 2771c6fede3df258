"""`tablestone expiry`: what it says before it switches a policy on, what it stores, and each refusal in a sentence."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from click.testing import CliRunner

from tablestone.cli.commands.expiry import expiry
from tablestone.cli.options import BrokenOption
from tablestone.clock import TICKS_PER_SECOND, system_clock
from tablestone.engines.registry import open_engine
from tablestone.model.edm import EdmType, EdmValue
from tablestone.model.entity import Entity
from tablestone.model.entity_json import members
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import EntityKey
from tablestone.model.operations import InsertEntity
from tablestone.tables.account_incarnation import Named
from tablestone.tables.catalog import Catalog
from tablestone.tables.service import TableService
from tablestone.tables.storage_keys import fresh_table_id

OWNER: Final = Named("devstoreaccount1")
COUNTS: Final = "4 entities, 1 expired now, 2 never"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the table Sessions: one entity of four has expired, one is to, and two never will."""
    place = tmp_path / "data"
    monkeypatch.setenv("TABLESTONE_DATA", str(place))

    async def fill() -> None:
        engine = open_engine(f"sqlite:{place}", system_clock)
        tables = TableService(engine, system_clock, lambda: 0.0, fresh_table_id)
        now = system_clock()
        values = (
            EdmValue(EdmType.DATE_TIME, now - TICKS_PER_SECOND),
            EdmValue(EdmType.DATE_TIME, now + 3600 * TICKS_PER_SECOND),
            EdmValue(EdmType.STRING, "soon"),
        )
        for table in ("Sessions", "Gone"):
            await tables.catalog.create(OWNER, table)
        for number, value in enumerate((*values, None)):
            properties = {} if value is None else {"expires": value}
            entity = Entity(EntityKey("p", str(number)), members(properties))
            await tables.execute(OWNER, InsertEntity("Sessions", entity))
        await tables.catalog.delete(OWNER, "Gone")
        await engine.close()

    asyncio.run(fill())
    return place


def said(line: str) -> list[str]:
    """The lines that the command prints, and the sentence with which it refuses."""
    result = CliRunner().invoke(expiry, line.split())
    lines = result.stdout.splitlines()
    if result.exception is None:
        return lines
    assert isinstance(result.exception, BrokenOption), result.exception
    refused = str(result.exception).replace(os.environ.get("TABLESTONE_DATA", "DATA"), "DATA")
    return [*lines, f"refused: {refused}"]


def stored(data: Path) -> ExpiryPolicy | None:
    async def read() -> ExpiryPolicy | None:
        engine = open_engine(f"sqlite:{data}", system_clock, read_only=True)
        tables = TableService(engine, system_clock, lambda: 0.0, fresh_table_id)
        record = await tables.catalog.require(OWNER, "Sessions")
        await engine.close()
        return record.expiry

    return asyncio.run(read())


def test_a_policy_is_set_suspended_resumed_and_removed(data: Path) -> None:
    waits = "refused: Nothing was changed: this needs --yes without a terminal."
    counts = f"Sessions, at the time in expires: {COUNTS}."
    done = "Entities of Sessions expire at the time in expires."
    listed = "devstoreaccount1\tSessions\tat the time in expires"
    policy = ExpiryPolicy(property_name="expires")
    assert said("list") == []
    assert said("set sessions --property expires") == [counts, waits]
    assert stored(data) is None
    assert said("set Sessions --property expires --yes") == [counts, done]
    assert stored(data) == policy
    assert said("list") == [f"{listed}\t{COUNTS}"]
    assert len(said("suspend Sessions")) == 1
    assert stored(data) == ExpiryPolicy(property_name="expires", suspended=True)
    assert said("list") == [f"{listed} (suspended)\t{COUNTS}"]
    assert said("resume Sessions") == [counts, waits]
    assert said("resume Sessions --yes") == [counts, done]
    assert stored(data) == policy
    assert said("set Sessions --after 7d --yes")[1] == (
        "Entities of Sessions expire 7d after their Timestamp."
    )
    assert said("set Sessions --after 90m --yes")[0].endswith("4 entities, 0 expired now.")
    assert stored(data) == ExpiryPolicy(after=5400)
    assert len(said("remove Sessions")) == 1
    assert stored(data) is None


def test_a_suspended_policy_that_is_replaced_stays_suspended(data: Path) -> None:
    """So it hides nothing, and nobody has to agree; `resume` counts and asks."""
    said("set Sessions --after 1d --yes")
    said("suspend Sessions")
    words = "at the time in expires (suspended)"
    where = "--account devstoreaccount1"
    assert said("set Sessions --property expires") == [
        f"Sessions, {words}: {COUNTS}.",
        f"Entities of Sessions expire {words}. To let it act: tablestone expiry resume Sessions {where}.",
    ]
    assert stored(data) == ExpiryPolicy(property_name="expires", suspended=True)


async def make_again(data: Path) -> None:
    engine = open_engine(f"sqlite:{data}", system_clock)
    catalog = Catalog(engine, system_clock, fresh_table_id)
    await catalog.delete(OWNER, "Sessions")
    await catalog.create(OWNER, "Sessions")
    await engine.close()


CHANGED: Final = "refused: The policy was changed meanwhile. Nothing was changed now."
DELETED: Final = "refused: The table Sessions is being deleted in DATA."


@pytest.mark.parametrize(
    ("before", "asked", "meanwhile", "sentence"),
    [
        ("set Sessions --after 1d", "resume Sessions", "set Sessions --property expires", CHANGED),
        ("set Sessions --after 1d", "resume Sessions", "remove Sessions", CHANGED),
        ("set Sessions --after 1d", "set Sessions --after 2d", "suspend Sessions", CHANGED),
        ("list", "set Sessions --after 1d", "made again", DELETED),
    ],
)
def test_only_what_was_counted_is_changed(
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    asked: str,
    meanwhile: str,
    sentence: str,
) -> None:
    """Another operator changes the policy, or the table is made again, while this one is asked."""
    said(f"{before} --yes" if before != "list" else before)
    if asked.startswith("resume"):
        said("suspend Sessions")
    found: list[ExpiryPolicy | None] = []

    def agree(*_: object, **__: object) -> bool:
        if meanwhile == "made again":
            asyncio.run(make_again(data))
        else:
            said(meanwhile)
        found.append(stored(data))
        return True

    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("tablestone.cli.commands.expiry.sys", terminal)
    monkeypatch.setattr("click.confirm", agree)
    assert said(asked)[-1] == sentence
    assert [stored(data)] == found


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1_764_200_000_000, ", 1 after the year 9999 (does it hold milliseconds?)"),
        (253_402_300_799, ""),
    ],
)
def test_milliseconds_are_suspected(data: Path, seconds: int, words: str) -> None:
    async def insert() -> None:
        engine = open_engine(f"sqlite:{data}", system_clock)
        tables = TableService(engine, system_clock, lambda: 0.0, fresh_table_id)
        properties = members({"expires": EdmValue(EdmType.INT64, seconds)})
        entity = Entity(EntityKey("p", "late"), properties)
        await tables.execute(OWNER, InsertEntity("Sessions", entity))
        await engine.close()

    asyncio.run(insert())
    counts = f"5 entities, 1 expired now, 2 never{words}"
    assert said("set Sessions --property expires --yes")[0].endswith(f": {counts}.")


NO_POLICY: Final = "The table has no expiry policy."
AGE: Final = "--after must be an age such as 90m, 24h or 7d, not"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("set Sessions", "Give either --after or --property."),
        ("set Sessions --after 24h --property expires", "Give either --after or --property."),
        ("set Sessions --after 0", f"{AGE} '0'."),
        ("set Sessions --after 0h", f"{AGE} '0h'."),
        ("set Sessions --after 24", f"{AGE} '24'."),
        ("set Sessions --after -1h", f"{AGE} '-1h'."),
        ("set Sessions --after 1w", f"{AGE} '1w'."),
        ("set Sessions --after 999999999d", "--after 999999999d is longer than 7,800 years."),
        *(
            (
                f"set Sessions --property {name}",
                "--property must be the name of a property, and neither a key nor Timestamp, which --after takes, "
                f"not '{name}'.",
            )
            for name in ("PartitionKey", "RowKey", "Timestamp", "a-b")
        ),
        ("set Gone --after 1h --yes", "The table Gone is being deleted in DATA."),
        ("suspend Gone", "The table Gone is being deleted in DATA."),
        (
            "set Other --after 1h --yes",
            "There is no table Other in the account devstoreaccount1 in DATA.",
        ),
        (
            "set Sessions --account other1 --after 1h",
            "There is no table Sessions in the account other1 in DATA, and no account of that name is stored.",
        ),
        ("suspend Sessions", NO_POLICY),
        ("resume Sessions --yes", NO_POLICY),
        ("remove Sessions", NO_POLICY),
        (
            "set Sessions --after 1h --engine memory:",
            "Expiry policies cannot be stored: the engine memory stores nothing.",
        ),
    ],
)
def test_each_refusal_is_one_sentence(
    line: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "memory" in line:
        monkeypatch.delenv("TABLESTONE_DATA")
    assert said(line) == [f"refused: {sentence}"]


def test_the_development_account_is_not_known_if_another_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TABLESTONE_ACCOUNT", "none")
    absent = "There is no table Other in the account devstoreaccount1 in DATA"
    assert said("suspend Other") == [f"refused: {absent}, and no account of that name is stored."]


def test_a_property_that_no_entity_has_is_named() -> None:
    assert said("set Sessions --property expire --yes") == [
        "Sessions, at the time in expire: 4 entities, and none has a time in this property.",
        "Entities of Sessions expire at the time in expire.",
    ]
