"""Steps of a program on stored access policies, expiry, clients with signatures under them, accounts and their keys."""

import base64
import re
from random import Random
from typing import Final
from xml.sax.saxutils import escape, unescape

from sas_signing import SAS_VERSION, query_of, signed
from stress.property import pools
from stress.property.answers import explains, listing, outcome_of
from stress.property.model import LETTERS, Expiry, Model, Refused
from stress.property.payloads import Request, entity_path, write_request
from stress.property.program import ALWAYS, SWARM, Owner, Program, Step
from tablestone.model.expiry import ExpiryPolicy
from wire.service_under_test import KEY

STORED_ACCOUNTS: Final = ("youngest", "eldest")
XML: Final = {"Content-Type": "application/xml", "Accept": "application/xml"}
POLICY: Final = re.compile(r"<Id>(.*?)</Id>.*?<Permission>(\w+)</Permission>", re.DOTALL)


def set_policies(program: Program, random: Random) -> None:
    owner, table, policies = program.owner(random), pools.table(random), pools.policies(random)
    inside = "".join(
        f"<SignedIdentifier><Id>{escape(name)}</Id><AccessPolicy><Expiry>9000-01-01</Expiry>"
        f"<Permission>{permission}</Permission></AccessPolicy></SignedIdentifier>"
        for name, permission in policies.items()
    )
    body = f"<SignedIdentifiers>{inside}</SignedIdentifiers>".encode()
    request = Request("PUT", f"/{table}?comp=acl", XML, body)
    answer = program.door.send(owner.request(request, random))
    expected = outcome_of(lambda: owner.model.set_policies(table, policies))
    assert outcome_of(lambda: answer.require(204)) == expected


def set_expiry(program: Program, random: Random) -> None:
    """Set, suspend or remove the policy by which entities of a table expire, as `tablestone expiry` does."""
    owner, table = program.owner(random), pools.table(random)
    after, name = random.choice(((1, None), (2, None), (None, "a"), (None, "B"), (None, "größe")))
    on, off = ExpiryPolicy(after, name), ExpiryPolicy(after, name, suspended=True)
    policy = random.choice((on, on, on, off, None))

    def change() -> None:
        is_on = policy is not None and not policy.suspended
        owner.model.table(table).expiry = Expiry(after, name or "") if is_on else None

    assert program.door.change_expiry(owner.name, table, policy) == outcome_of(change)
    program.note_change()


def sweep_expired(program: Program, _random: Random) -> None:
    program.door.sweep_expired()
    for owner in program.owners.values():
        owner.model.sweep()


def get_policies(program: Program, random: Random) -> None:
    owner, table = program.owner(random), pools.table(random)
    request = Request("GET", f"/{table}?comp=acl", {"Accept": "application/xml"})
    answer = program.door.send(owner.request(request, random))
    expected = outcome_of(lambda: owner.model.table(table))
    assert outcome_of(lambda: answer.require(200)) == expected
    if expected is None:
        found = [(unescape(name), word) for name, word in POLICY.findall(answer.body.decode())]
        assert found == list(owner.model.table(table).policies.items())


def with_policy(program: Program, random: Random) -> None:
    """A client whose signature names a policy reads, writes or queries."""
    owner, table = program.main, pools.table(random)
    policy = random.choice(pools.POLICY_IDS[:4])
    parameters = signed(owner.name, KEY, {"sv": SAS_VERSION, "tn": table, "si": policy})
    key = program.key_at(pools.place(random))
    kind = random.choice(("get", "query", "write", "write", "write"))
    write = program.resolved(owner, table, pools.well_formed_write(random))
    request = {
        "get": Request("GET", f"/{entity_path(table, key)}"),
        "query": listing(table),
        "write": write_request(table, write),
    }[kind]
    path = f"{request.path}?{query_of(parameters)}"
    answer = program.door.send(Request(request.method, path, request.headers, request.body, key=""))
    letters = LETTERS[write.kind] if kind == "write" else "r"
    refused = outcome_of(lambda: owner.model.permit(table, policy, letters))
    if refused is not None:
        assert outcome_of(lambda: answer.require(200)) == refused
    elif kind == "get":
        expected = outcome_of(lambda: owner.model.get(table, key))
        assert outcome_of(lambda: answer.require(200)) == expected
    elif kind == "query":
        assert explains(owner.model, table, None, answer)
    else:
        program.compare_writes(owner, table, [write], answer, random)


def change_account(program: Program, random: Random) -> None:
    """Create an account, rotate a key, or delete the account, which is refused while it has tables unless forced."""
    name = random.choice(STORED_ACCOUNTS)
    owner = program.owners.get(name)
    fresh = new_key(program, random)
    if owner is None:
        other = new_key(program, random)
        assert program.door.administer(lambda accounts: accounts.create(name, (fresh, other)))
        program.owners[name] = Owner(name, Model(program.now), [fresh, other], [])
    elif random.randrange(2):
        number = random.randrange(2)
        assert program.door.administer(
            lambda accounts: accounts.replace_key(name, number + 1, fresh)
        )
        program.old_keys.append(str(owner.keys[number]))
        owner.keys[number] = fresh
    else:
        is_forced = bool(random.randrange(2))
        is_done = is_forced or not owner.model.tables
        assert is_done == program.door.administer(
            lambda accounts: accounts.delete(name, with_tables=is_forced)
        )
        if is_done:
            program.old_keys += map(str, owner.keys)
            del program.owners[name]
    del program.old_keys[:-8]


def new_key(program: Program, random: Random) -> str:
    """A key that no account has had. Hypothesis may draw the same bits twice."""
    program.keys_made += 1
    bits = program.keys_made << 224 | random.getrandbits(224)
    return base64.b64encode(bits.to_bytes(32, "big")).decode()


def with_old_key(program: Program, random: Random) -> None:
    """A rotated key, or one of a deleted account, opens nothing."""
    if not program.old_keys:
        return
    name = random.choice(STORED_ACCOUNTS)
    old = random.choice(program.old_keys)
    answer = program.door.send(Request("GET", "/Tables", account=name, key=old))

    def refuse() -> None:
        raise Refused("AuthenticationFailed" if name in program.owners else "ResourceNotFound")

    assert outcome_of(lambda: answer.require(200)) == outcome_of(refuse)


STEPS: Final[dict[str, Step]] = {
    **ALWAYS,
    **SWARM,
    "policies": set_policies,
    "get_policies": get_policies,
    "expiry": set_expiry,
    "sweep": sweep_expired,
    "with_policy": with_policy,
    "accounts": change_account,
    "old_key": with_old_key,
}
"""Every step by name."""
ALWAYS_ALLOWED: Final = frozenset(ALWAYS)
