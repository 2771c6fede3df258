"""Bearer tokens: the valid ones, why others are refused, and every change of a valid one."""

import base64
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tablestone import limits
from tablestone.auth.bearer_tokens import (
    VERIFIED_KEPT_MAX,
    Issuer,
    TokenRefused,
    TokenTrust,
    VerifiedToken,
    issue_token,
    make_issuer,
    own_issuer,
    read_keys,
)
from tablestone.auth.roles import DATA_CONTRIBUTOR, DATA_READER
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tokens import (
    AUDIENCE,
    ISSUER,
    OBJECT_ID,
    TENANT,
    EcKey,
    Key,
    RsaKey,
    base64url,
    claims_at,
    key_set,
    segment,
    signed,
    signed_with_nothing,
    signed_with_the_public_key,
)

NOW = 1_700_000_000
NOW_TICKS = NOW * TICKS_PER_SECOND + UNIX_EPOCH_TICKS
ACCOUNT = "weather"
KEY = RsaKey("one")
SECOND = RsaKey("two")
STRANGER = RsaKey("one")
CURVE = EcKey("curve")
LEEWAY = limits.TOKEN_LEEWAY_SECONDS


def trust_in(*keys: Key, audiences: tuple[str, ...] = ()) -> TokenTrust:
    return TokenTrust((Issuer(ISSUER, TENANT, read_keys(key_set(*keys))),), audiences)


TRUST = trust_in(KEY, SECOND, CURVE, audiences=("api://tables",))


def check(text: str, now: int = NOW_TICKS, account: str = ACCOUNT) -> VerifiedToken:
    return TRUST.check(text.encode("latin-1"), account, now)


def good(**changed: Any) -> str:
    return signed(KEY, claims_at(NOW, **changed))


def test_a_valid_token_says_who_holds_it() -> None:
    token = check(good(groups=["g"], appid="app", roles=["Storage Table Data Reader", "Owner"]))
    assert (token.object_id, token.tenant_id) == (OBJECT_ID, TENANT)
    assert token.principals == (OBJECT_ID, "app", "g")
    assert token.claimed == (DATA_READER,)


BELIEVED: dict[str, Callable[[], str]] = {
    "RS256": good,
    "another of its keys": lambda: signed(SECOND, claims_at(NOW)),
    "ES256": lambda: signed(CURVE, claims_at(NOW)),
    "several audiences": lambda: good(aud=["someone", AUDIENCE]),
    "with a slash": lambda: good(aud=f"{AUDIENCE}/"),
    "by the id of the service": lambda: good(aud="e406a681-f3d4-42a8-90b6-c2b029497af1"),
    "for Cosmos, as Python asks on localhost": lambda: good(aud="https://cosmos.azure.com"),
    "for the account": lambda: good(aud=f"https://{ACCOUNT}.table.core.windows.net"),
    "for the account, with a slash": lambda: good(aud=f"https://{ACCOUNT}.table.core.windows.net/"),
    "in another cloud": lambda: good(aud=f"https://{ACCOUNT}.table.core.usgovcloudapi.net"),
    "an audience that is configured": lambda: good(aud="api://tables"),
    "without nbf": lambda: good(nbf=None),
    "just expired": lambda: good(exp=NOW - LEEWAY + 1),
    "almost valid": lambda: good(nbf=NOW + LEEWAY),
    "times with fractions": lambda: good(exp=NOW + 0.5, nbf=NOW - 0.5),
    "without roles": lambda: good(roles=None),
    "named by its subject": lambda: good(oid=None, sub="somebody"),
}
REFUSED: dict[str, tuple[Callable[[], str], str]] = {
    "another issuer": (lambda: good(iss=ISSUER.replace("1111", "2222")), "issuer"),
    "without an issuer": (lambda: good(iss=None), "issuer"),
    "an issuer that is a list": (lambda: good(iss=[ISSUER]), "issuer"),
    "another issuer's key": (lambda: signed(STRANGER, claims_at(NOW)), "signature"),
    "the id of another key": (lambda: signed(KEY, claims_at(NOW), kid="two"), "signature"),
    "an unknown key": (lambda: signed(KEY, claims_at(NOW), kid="three"), "no key"),
    "no key named": (lambda: signed(KEY, claims_at(NOW), kid=None), "no key"),
    "a key id that is a number": (lambda: signed(KEY, claims_at(NOW), kid=1), "cannot be read"),
    "algorithm none": (lambda: signed_with_nothing(KEY, claims_at(NOW)), "not a signed token"),
    "algorithm None": (
        lambda: signed_with_nothing(KEY, claims_at(NOW), "None"),
        "not a signed token",
    ),
    "algorithm none with a signature": (
        lambda: signed_with_nothing(KEY, claims_at(NOW)) + "AAAA",
        "signature",
    ),
    "HMAC with the public key": (
        lambda: signed_with_the_public_key(KEY, claims_at(NOW)),
        "signature",
    ),
    "said to be RS256, HMAC with the public key": (
        lambda: signed_with_the_public_key(KEY, claims_at(NOW), "RS256"),
        "signature",
    ),
    "another algorithm": (lambda: signed(KEY, claims_at(NOW), alg="RS512"), "signature"),
    "no algorithm": (lambda: signed(KEY, claims_at(NOW), alg=None), "signature"),
    "a key of its own": (
        lambda: signed(STRANGER, claims_at(NOW), jwk=STRANGER.jwk(), jku="https://evil.example"),
        "signature",
    ),
    "something critical nobody knows": (
        lambda: signed(KEY, claims_at(NOW), crit=["exp2"], exp2=1),
        "cannot be read",
    ),
    "a detached payload": (
        lambda: signed(KEY, claims_at(NOW), b64=False, crit=["b64"]),
        "cannot be read",
    ),
    "expired": (lambda: good(exp=NOW - LEEWAY), "expired"),
    "not yet valid": (lambda: good(nbf=NOW + LEEWAY + 1), "not valid yet"),
    "without exp": (lambda: good(exp=None), "no exp"),
    "exp as a text": (lambda: good(exp=str(NOW + 60)), "no exp"),
    "exp is true": (lambda: good(exp=True), "no exp"),
    "exp beyond all time": (lambda: good(exp=1e300), "not a time"),
    "exp before time": (lambda: good(exp=-1), "not a time"),
    "nbf as a text": (lambda: good(nbf="0"), "no nbf"),
    "without an audience": (lambda: good(aud=None), "another audience"),
    "an empty list of audiences": (lambda: good(aud=[]), "another audience"),
    "another audience": (lambda: good(aud="https://graph.microsoft.com"), "another audience"),
    "another account": (
        lambda: good(aud="https://other.table.core.windows.net"),
        "another audience",
    ),
    "an account elsewhere": (
        lambda: good(aud=f"https://{ACCOUNT}.table.evil.example"),
        "another audience",
    ),
    "the account's name without https": (
        lambda: good(aud=f"{ACCOUNT}.table.Core.windows.net"),
        "another audience",
    ),
    "two slashes": (lambda: good(aud=f"{AUDIENCE}//"), "another audience"),
    "an audience that is an object": (lambda: good(aud={AUDIENCE: 1}), "not a list"),
    "another tenant": (lambda: good(tid=TENANT.replace("1", "2")), "tenant"),
    "without a tenant": (lambda: good(tid=None), "tenant"),
    "about nobody": (lambda: good(oid=None), "does not name its holder"),
    "an object id that is a number": (lambda: good(oid=7), "not a text"),
    "roles that are numbers": (lambda: good(roles=[1]), "not a list"),
    "claims that are a list": (lambda: signed(KEY, [1]), "cannot be read"),
    "too long": (lambda: good(filler="x" * limits.TOKEN_LENGTH_MAX), "too long"),
    "empty": (lambda: "", "not a signed token"),
    "one dot": (lambda: good().rpartition(".")[0], "not a signed token"),
    "three dots": (lambda: good() + ".x", "not a signed token"),
    "truncated": (lambda: good()[:-10], "signature"),
    "garbled": (lambda: good().replace("A", "!"), "not a signed token"),
    "padded": (lambda: good() + "==", "not a signed token"),
    "two tokens": (lambda: f"{good()} {good()}", "not a signed token"),
    "not JSON": (lambda: f"{base64url(b'{')}.{base64url(b'{')}.AAAA", "cannot be read"),
    "JSON a thousand deep": (
        lambda: f"{base64url(b'[' * 5000)}.{segment({})}.AAAA",
        "cannot be read",
    ),
    "claims a thousand deep": (
        lambda: f"{segment({'alg': 'RS256', 'kid': 'one'})}.{base64url(b'[' * 5000)}.AAAA",
        "cannot be read",
    ),
}


@pytest.mark.parametrize("make", BELIEVED.values(), ids=BELIEVED.keys())
def test_accepted_tokens(make: Callable[[], str]) -> None:
    assert check(make()).tenant_id == TENANT


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(make: Callable[[], str], reason: str) -> None:
    text = make()
    for _ in range(2):  # the second time too: nothing refused is cached as valid
        with pytest.raises(TokenRefused, match=reason) as refused:
            check(text)
        assert not any(part and part in str(refused.value) for part in text.split("."))


def test_a_token_is_accepted_no_longer_than_it_says() -> None:
    """Even one whose signature is not checked again."""
    text = good()
    check(text)
    for now in (NOW - 300 - LEEWAY - 1, NOW + 3600 + LEEWAY):
        with pytest.raises(TokenRefused):
            check(text, now * TICKS_PER_SECOND + UNIX_EPOCH_TICKS)


def test_a_token_for_one_account_is_for_no_other() -> None:
    text = good(aud=f"https://{ACCOUNT}.table.core.windows.net")
    check(text)
    with pytest.raises(TokenRefused, match="another audience"):
        check(text, account="other")


@pytest.mark.parametrize(
    ("audience", "account"),
    [
        ("https://weather.table.tables.example", "weather"),
        ("https://weather.table.tables.example/", "weather"),
        ("https://Weather.Example", "weather"),
    ],
)
def test_a_token_for_the_account_under_its_own_names(audience: str, account: str) -> None:
    issuers = (Issuer(ISSUER, TENANT, read_keys(key_set(KEY))),)
    trust = TokenTrust(issuers, (), ("tables.example",), (("weather.example", "weather"),))
    text = good(aud=audience).encode()
    assert trust.check(text, account, NOW_TICKS).object_id == OBJECT_ID
    for other, elsewhere in ((trust, "other"), (TokenTrust(issuers), account)):
        with pytest.raises(TokenRefused, match="another audience"):
            other.check(text, elsewhere, NOW_TICKS)


def test_a_user_s_token_has_not_the_roles_of_the_application() -> None:
    """Otherwise, a user who signs in with an application would have the permissions of the application."""
    assert check(good(appid="app", scp="user_impersonation")).principals == (OBJECT_ID,)
    assert check(good(azp="app")).principals == (OBJECT_ID, "app")


def test_an_unknown_key_is_asked_for_and_nothing_else() -> None:
    unknown = signed(KEY, claims_at(NOW), kid="three").encode()
    assert TRUST.missing_key_of(unknown) == ISSUER
    for text in (good(), good(iss="https://evil.example"), "", "a.b.c"):
        assert TRUST.missing_key_of(text.encode()) is None


def test_a_bounded_number_of_tokens_is_cached() -> None:
    trust = trust_in(CURVE)
    first = signed(CURVE, claims_at(NOW, number=-1)).encode()
    trust.check(first, ACCOUNT, NOW_TICKS)
    for number in range(VERIFIED_KEPT_MAX):
        trust.check(signed(CURVE, claims_at(NOW, number=number)).encode(), ACCOUNT, NOW_TICKS)
    assert len(trust._verified) == VERIFIED_KEPT_MAX
    assert first not in trust._verified


KEY_SETS = {
    "no JSON": b"{",
    "a list": b"[]",
    "no keys": b"{}",
    "none in it": b'{"keys":[]}',
    "no objects": b'{"keys":[1,null]}',
    "symmetric": b'{"keys":[{"kty":"oct","k":"AAAA","kid":"one"}]}',
    "without an id": json.dumps({"keys": [KEY.jwk(kid=None)]}).encode(),
    "for encryption": json.dumps({"keys": [KEY.jwk(use="enc")]}).encode(),
    "for another algorithm": json.dumps({"keys": [KEY.jwk(alg="RS512")]}).encode(),
    "too short": json.dumps({"keys": [RsaKey("short", 1024).jwk()]}).encode(),
    "another curve": json.dumps({"keys": [CURVE.jwk(crv="P-384")]}).encode(),
    "broken": json.dumps({"keys": [KEY.jwk(n="!")]}).encode(),
    "incomplete": b'{"keys":[{"kty":"RSA","kid":"one"}]}',
}


@pytest.mark.parametrize("document", KEY_SETS.values(), ids=KEY_SETS.keys())
def test_keys_that_cannot_sign_tokens_are_ignored(document: bytes) -> None:
    if document in {b"{", b"[]", b"{}"}:
        with pytest.raises(ValueError, match=r"^it "):
            read_keys(document)
    else:
        assert not read_keys(document)
    beside = json.loads(document) if document != b"{" else {}
    if isinstance(beside, dict):
        beside.setdefault("keys", []).append(SECOND.jwk())
        assert list(read_keys(json.dumps(beside).encode())) == ["two"]


def test_only_the_server_itself_accepts_its_own_tokens() -> None:
    mine, others = make_issuer(), make_issuer()
    text = issue_token(
        mine,
        principal="somebody",
        roles=["Storage Table Data Contributor"],
        tenant=TENANT,
        audience=AUDIENCE,
        lifetime_seconds=60,
        now=NOW_TICKS,
    ).encode()
    token = TokenTrust((own_issuer(mine),)).check(text, ACCOUNT, NOW_TICKS)
    assert (token.object_id, token.claimed) == ("somebody", (DATA_CONTRIBUTOR,))
    assert token.expiry == NOW_TICKS + 60 * TICKS_PER_SECOND
    with pytest.raises(TokenRefused, match="issuer"):
        TokenTrust((own_issuer(others),)).check(text, ACCOUNT, NOW_TICKS)
    renamed = {**others, "issuer": mine["issuer"]}
    with pytest.raises(TokenRefused, match="no key"):
        TokenTrust((own_issuer(renamed),)).check(text, ACCOUNT, NOW_TICKS)


def test_nothing_shows_a_private_key() -> None:
    members = make_issuer()
    assert "PRIVATE" not in repr(own_issuer(members))
    assert not {"d", "p", "q"} & members["keys"][0].keys()


# No change of a valid token is accepted. The other mutations of signatures are in tests/stress/property.

MUTATIONS = 25_000
GOOD = good().encode()
CURVED = signed(CURVE, claims_at(NOW)).encode()
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def mutated(draw: random.Random) -> bytes:
    """A token with some characters changed, removed, added, swapped or flipped, or pieces of two tokens."""
    text = bytearray(draw.choice((GOOD, CURVED)))
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(text))
        how = draw.randrange(6)
        if how == 0:
            text[place] = draw.choice(ALPHABET)
        elif how == 1:
            del text[place : place + draw.randint(1, 8)]
        elif how == 2:
            text[place:place] = bytes(draw.choices(ALPHABET + b".=+/ ", k=draw.randint(1, 4)))
        elif how == 3:
            text[place : place + 4] = text[place : place + 4][::-1]
        elif how == 4:
            text[place] ^= 1 << draw.randrange(8)
        else:
            other = draw.choice((GOOD, CURVED))
            text[place:] = other[draw.randrange(len(other)) :]
        text = text or bytearray(b".")
    return bytes(text)


def gets_in(text: bytes) -> bool:
    try:
        TRUST.check(text, ACCOUNT, NOW_TICKS)
    except TokenRefused:
        return False
    return True


def test_no_mutation_of_a_valid_token_is_accepted() -> None:
    draw = random.Random(20170105)
    changed = {mutated(draw) for _ in range(MUTATIONS)} - {GOOD, CURVED}
    assert len(changed) > MUTATIONS * 0.9
    assert [text for text in changed if gets_in(text)] == []


def test_no_other_last_character_is_accepted() -> None:
    """The last one has bits that decoding drops, so only its original spelling is the same token."""
    for token in (GOOD, CURVED):
        others = [token[:-1] + bytes([last]) for last in ALPHABET if last != token[-1]]
        last = base64.urlsafe_b64decode(token.rpartition(b".")[2] + b"==")
        same = [
            o for o in others if base64.urlsafe_b64decode(o.rpartition(b".")[2] + b"==") == last
        ]
        assert same, "none decodes to the same signature: nothing is shown"
        assert not any(map(gets_in, others))


def test_a_cached_token_is_checked_quickly() -> None:
    check(good())
    text = good().encode()
    TRUST.check(text, ACCOUNT, NOW_TICKS)
    started = time.process_time()
    for _ in range(1000):
        TRUST.check(text, ACCOUNT, NOW_TICKS)
    remembered = time.process_time() - started
    started = time.process_time()
    for _ in range(20):
        trust_in(KEY).check(text, ACCOUNT, NOW_TICKS)
    assert remembered / 1000 < (time.process_time() - started) / 20
