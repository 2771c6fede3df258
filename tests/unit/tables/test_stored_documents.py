"""Documents as `tablestone check` reads them, sound and damaged; no message contains a key."""

import asyncio
import base64
import functools
from typing import Any

import orjson
import pytest

from tablestone.accounts.stored_accounts import DOCUMENT_READERS
from tablestone.auth.bearer_tokens import make_issuer
from tablestone.auth.roles import DATA_READER
from tablestone.cli.main import HOW_IT_RUNS
from tablestone.clock import system_clock
from tablestone.engines.contract import ANY, Change, Put, WriteSet
from tablestone.engines.memory import MemoryEngine
from tablestone.tables import storage_keys
from tablestone.tables.integrity import check_rows
from tablestone.tables.metadata import DocumentKind
from tablestone.tables.storage_keys import in_words

KEY = base64.b64encode(b"a key that nobody may read").decode()
SECRET = base64.b64encode(b"s3cret s3cret s3cret s3cret s3cr").decode()
ACCOUNT, ROLES, SECRETS = DocumentKind.ACCOUNT, DocumentKind.ROLES, DocumentKind.SECRETS
ROLE = {"principal": "somebody", "role": DATA_READER.id}

make_once = functools.cache(make_issuer)


def issuer(**changes: Any) -> dict[str, Any]:
    return {**make_once(), **changes}


def private(**changes: str) -> dict[str, Any]:
    return issuer(private={**make_once()["private"], **changes})


WHOLE: dict[str, tuple[DocumentKind, str, Any]] = {
    "an account": (ACCOUNT, "weather", {"name": "weather", "keys": [KEY]}),
    "an account that is being deleted": (
        ACCOUNT,
        "weather",
        {"name": "weather", "keys": [KEY, KEY], "isBeingDeleted": True, "id": "1", "tenure": 7},
    ),
    "roles": (ROLES, "weather", {"assignments": [ROLE, {**ROLE, "table": "readings"}]}),
    "a role of a later version": (ROLES, "weather", {"assignments": [{**ROLE, "role": "x"}]}),
    "the secret of users' keys": (SECRETS, "user-delegation", {"secret": SECRET}),
    "the key that signs tokens": (SECRETS, "token-key", issuer()),
}
NO_OBJECT = "dict object expected; got list" if HOW_IT_RUNS == "compiled" else "list indices"
BROKEN: dict[str, tuple[DocumentKind, str, Any, str]] = {
    "an account of another name": (
        *(ACCOUNT, "weather", {"name": "climate", "keys": [KEY]}),
        "it is of an account of another name",
    ),
    "a name that is none": (
        *(ACCOUNT, "Weather", {"name": "Weather", "keys": [KEY]}),
        "is not an account name",
    ),
    "no keys": (ACCOUNT, "weather", {"name": "weather"}, "it has no member 'keys'"),
    "an empty list of keys": (
        *(ACCOUNT, "weather", {"name": "weather", "keys": []}),
        "must have one or two keys",
    ),
    "a key that is not base64": (
        *(ACCOUNT, "weather", {"name": "weather", "keys": [KEY[:-1]]}),
        "A key is not valid base64",
    ),
    "keys that are one text": (
        *(ACCOUNT, "weather", {"name": "weather", "keys": KEY}),
        "A key is not valid base64",
    ),
    "a key that is a number": (
        *(ACCOUNT, "weather", {"name": "weather", "keys": [5]}),
        "not 'int'",
    ),
    "a list in the place of an account": (ACCOUNT, "weather", [KEY], NO_OBJECT),
    "roles without assignments": (ROLES, "weather", {}, "it has no member 'assignments'"),
    "a role of nobody": (
        *(ROLES, "weather", {"assignments": [{"role": DATA_READER.id}]}),
        "it has no member 'principal'",
    ),
    "a principal that is a number": (
        *(ROLES, "weather", {"assignments": [{**ROLE, "principal": 5}]}),
        "'int' object has no attribute 'lower'",
    ),
    "a table that is a number": (
        *(ROLES, "weather", {"assignments": [{**ROLE, "table": 5}]}),
        "a table whose name is no text",
    ),
    "no secret": (SECRETS, "user-delegation", {}, "it has no member 'secret'"),
    "a secret cut short": (SECRETS, "user-delegation", {"secret": SECRET[:20]}, "another length"),
    "a secret that is not base64": (
        *(SECRETS, "user-delegation", {"secret": SECRET[:-1]}),
        "Incorrect padding",
    ),
    "an issuer without a name": (
        SECRETS,
        "token-key",
        issuer(issuer=None),
        "its name is not a text",
    ),
    "no private key": (SECRETS, "token-key", issuer(private={}), "it has no member 'kid'"),
    "a private key cut short": (
        *(SECRETS, "token-key", private(pem=make_once()["private"]["pem"][:-40])),
        "its private key cannot be read",
    ),
    "public keys of another": (
        *(SECRETS, "token-key", issuer(keys=make_issuer()["keys"])),
        "its private key belongs to none of its public keys",
    ),
    "a private key of another": (
        *(SECRETS, "token-key", private(pem=make_issuer()["private"]["pem"])),
        "its private key belongs to none of its public keys",
    ),
    "a secret nobody knows": (SECRETS, "colour", {"secret": SECRET}, "for no known use"),
}


def problems(kind: DocumentKind, name: str, members: Any) -> list[str]:
    def render(version: int) -> bytes:
        return orjson.dumps({"version": version, "members": members})

    async def scene() -> list[str]:
        engine = MemoryEngine(system_clock)
        place = storage_keys.document_place(kind.value, name)
        await engine.commit(WriteSet(place.partition, (Change(place.row, ANY, Put(render)),)))
        return await check_rows(engine, DOCUMENT_READERS)

    return asyncio.run(scene())


@pytest.mark.parametrize(("kind", "name", "members"), WHOLE.values(), ids=WHOLE)
def test_whole(kind: DocumentKind, name: str, members: Any) -> None:
    assert problems(kind, name, members) == []


@pytest.mark.parametrize(("kind", "name", "members", "words"), BROKEN.values(), ids=BROKEN)
def test_broken(kind: DocumentKind, name: str, members: Any, words: str) -> None:
    (sentence,) = problems(kind, name, members)
    start = f"{in_words(storage_keys.document_place(kind.value, name), {})}: unreadable: "
    assert sentence.startswith(start)
    assert words in sentence
    for secret in (KEY, SECRET, make_once()["private"]["pem"]):
        assert secret[:16] not in sentence
        assert secret[-32:-16] not in sentence
