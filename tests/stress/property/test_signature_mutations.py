"""A hundred thousand changed requests: invalid signatures are refused, the others permit no more (auth 1 to 3).

Every mutation starts from an accepted request. The tests' own reading of the specification decides whether the signed
text has changed. If so, the request must be refused; if not, it has exactly the permissions of the original.
"""

import asyncio
import base64
import hmac
from collections.abc import Callable
from random import Random

import pytest

from stress.property.signature_mutations import mutated
from stress.property.signed_requests import (
    ACCOUNT,
    KEY,
    POLICY,
    SECOND_KEY,
    USER,
    Request,
    signed_requests,
    signed_text,
)
from tablestone.accounts.identities import Identities
from tablestone.accounts.known_accounts import KnownAccounts
from tablestone.auth import shared_access_signature
from tablestone.auth.account import Account
from tablestone.auth.authenticate import PresentedToken, authenticate
from tablestone.auth.permissions import Caller
from tablestone.auth.roles import DATA_CONTRIBUTOR, Assignment, Assignments
from tablestone.auth.shared_access_signature import TableSasOfPolicy, UserDelegationSas
from tablestone.auth.user_delegation_key import DelegationFields, delegation_key
from tablestone.configuration import AccountKeys, TokenRules
from tablestone.engines.memory import MemoryEngine
from tablestone.model.entity import Entity
from tablestone.model.errors import StorageError
from tablestone.model.keys import EntityKey
from tablestone.model.operations import (
    AccessPolicy,
    CreateTable,
    DeleteEntity,
    DeleteTable,
    GetEntity,
    InsertEntity,
    InsertOrReplaceEntity,
    MergeEntity,
    Operation,
    QueryEntities,
    QueryTables,
    SignedIdentifier,
)
from tablestone.model.shared_access import parse_instant
from tablestone.server.requests.account_address import Addresses
from tablestone.server.requests.pipeline import Pipeline
from tablestone.tables.account_incarnation import Named
from tablestone.tables.metadata import DELEGATION, DocumentKind, Documents
from tablestone.tables.service import TableService
from tablestone.telemetry.request_record import RequestRecord
from tablestone.wire.address import parse_query_string
from tablestone.wire.messages import RawRequest

MUTATIONS = 100_000
THROUGH_THE_PIPELINE = 5_000
_NOW = parse_instant("2024-05-06T07:08:09Z")
_ACCOUNT = Account(ACCOUNT, (KEY, SECOND_KEY))
_POLICIES = (SignedIdentifier(POLICY, AccessPolicy(None, parse_instant("2034-05-06"), "ra")),)
_SECRET = bytes(range(32))
_ASSIGNMENTS = Assignments([Assignment(USER["skoid"], DATA_CONTRIBUTOR, None)])
_USER_KEY = base64.b64encode(
    delegation_key(_SECRET, ACCOUNT, DelegationFields(*USER.values()), None)
).decode()
_KEYS = [EntityKey(*key) for key in (("a", "0"), ("a", "2"), ("a b", "1"), ("z", "z"))]
_PROBES: tuple[Operation, ...] = (
    CreateTable("tab"),
    DeleteTable("tab"),
    QueryTables(None, 1000, None),
    *(QueryEntities(table, None, 1000, None, None) for table in ("tab", "other")),
    *(GetEntity("tab", key, None) for key in _KEYS),
    *(InsertEntity("tab", Entity(key, {})) for key in _KEYS),
    *(InsertOrReplaceEntity("tab", Entity(key, {})) for key in _KEYS),
    *(MergeEntity("tab", Entity(key, {}), -1) for key in _KEYS),
    *(DeleteEntity("tab", key, -1) for key in _KEYS),
)
_UNSIGNED = {
    b"x-ms-version": b"2019-02-02",
    b"host": b"127.0.0.1",
    b"accept": b"application/json;odata=nometadata",
}
"""Required headers that no signature covers; without them the pipeline would refuse accepted requests too."""


def _raw(request: Request) -> RawRequest:
    return RawRequest(
        request.method, request.path, request.query, request.headers, "https", "127.0.0.1"
    )


def _caller(request: Request) -> Caller | None:
    """The caller that the server recognizes; None if the request is refused."""
    raw = _raw(request)
    try:
        parameters = parse_query_string(raw.query_string)
        caller = authenticate(raw, _ACCOUNT, parameters, "2019-02-02", _NOW)
        if isinstance(caller, TableSasOfPolicy):
            caller = caller.completed(_POLICIES, raw, _NOW)
        elif isinstance(caller, UserDelegationSas):
            caller = caller.completed(_SECRET, _ASSIGNMENTS, raw, _NOW)
    except StorageError:
        return None
    assert not isinstance(caller, PresentedToken), request
    return caller


def _rights(caller: Caller) -> list[str]:
    """The result of each probe: the permitted operation, or the error."""
    found = []
    for operation in _PROBES:
        try:
            found.append(repr(caller.permit(operation)))
        except StorageError as error:
            found.append(error.code)
    return found


def _first_that_gets_in(mutations: int, seed: int) -> Request | None:
    """The first of so many changed requests that is wrongly accepted, or permits more than its original."""
    random = Random(seed)
    originals = signed_requests(_USER_KEY)
    texts = [signed_text(original) for original in originals]
    rights = []
    for original in originals:
        caller = _caller(original)
        assert caller is not None, original
        rights.append(_rights(caller))
    spoiled = 0
    while spoiled < mutations:
        which = random.randrange(len(originals))
        request = mutated(random, originals[which], originals)
        caller, text = _caller(request), signed_text(request)
        if text != texts[which]:
            # It may have become another of the signed requests, by taking that one's signature.
            if caller is not None and text not in texts:
                return request
            spoiled += 1
        elif caller is not None and _rights(caller) != rights[which]:
            return request
    return None


@pytest.mark.slow
def test_none_of_a_hundred_thousand_gets_in() -> None:
    assert _first_that_gets_in(MUTATIONS, seed=4) is None


def test_none_gets_through_the_pipeline() -> None:
    """The same through the whole pipeline, which also checks an address, a version and a body."""
    random = Random(5)
    originals = signed_requests(_USER_KEY)
    texts = [signed_text(original) for original in originals]
    engine = MemoryEngine(lambda: _NOW)
    service = TableService(engine, lambda: _NOW, lambda: 0.0, lambda: b"\0" * 8)
    documents = Documents(engine)
    identities = Identities(documents, TokenRules(), lambda: 0.0)
    accounts = KnownAccounts(
        [AccountKeys(ACCOUNT, (KEY, SECOND_KEY))], documents, service.catalog.incarnations
    )
    pipeline = Pipeline(service, Addresses(accounts), identities, lambda: _NOW)

    async def read_body(_bytes_max: int) -> bytes:
        return b"{}"

    async def status(request: Request) -> int:
        raw = _raw(request)
        raw.headers = {**_UNSIGNED, **request.headers}
        if b"authorization" not in request.headers:  # SharedKey signs the type
            raw.headers[b"content-type"] = b"application/json"
        return (await pipeline.answer(raw, read_body, RequestRecord(0.0))).status

    async def run() -> None:
        await service.catalog.create(Named(ACCOUNT), "tab")
        await documents.change(DocumentKind.ROLES, ACCOUNT, lambda _: _ASSIGNMENTS.members())
        secret = {"secret": base64.b64encode(_SECRET).decode()}
        await documents.change(DocumentKind.SECRETS, DELEGATION, lambda _: secret)
        assert [await status(each) for each in (originals[0], originals[-2])] == [200, 200]
        spoiled = 0
        while spoiled < THROUGH_THE_PIPELINE:
            request = mutated(random, random.choice(originals), originals)
            if signed_text(request) in texts:
                continue
            assert 400 <= await status(request) < 500, request
            spoiled += 1

    asyncio.run(run())


def _all_but_two_characters(first: bytes, second: bytes) -> bool:
    return first[:-2] == second[: len(first) - 2]


def _in_any_case(first: bytes, second: bytes) -> bool:
    return first.lower() == second.lower()


_AS_SIGNED = shared_access_signature.string_to_sign_table_sas


def _permissions_in_any_case(account: str, parameters: dict[str, str]) -> str:
    return _AS_SIGNED(account, {**parameters, "sp": parameters.get("sp", "").lower()})


@pytest.mark.parametrize(
    ("module", "name", "fault"),
    [
        (hmac, "compare_digest", _all_but_two_characters),
        (hmac, "compare_digest", _in_any_case),
        (shared_access_signature, "string_to_sign_table_sas", _permissions_in_any_case),
    ],
    ids=["two characters less", "a signature in any case", "permissions in any case"],
)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, fault: Callable[..., object]
) -> None:
    monkeypatch.setattr(module, name, fault)
    found = _first_that_gets_in(20_000, seed=6)
    assert found is not None
