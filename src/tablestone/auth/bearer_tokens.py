"""Bearer tokens: reads the keys of issuers, checks tokens, and issues tokens.

A token is accepted if a trusted issuer signed it with a published key, if its audience is this service, and if it is
valid now (auth 4). The server is an issuer too, so that tokens can be tried without a cloud.
"""

import base64
import re
import secrets
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import jwt
import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWS
from jwt.algorithms import RSAAlgorithm
from jwt.exceptions import PyJWTError

from tablestone import limits
from tablestone.auth.roles import Role, find_role
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS

ALGORITHMS: Final = {"RSA": "RS256", "EC": "ES256"}
"""The algorithm of each type of key. The key decides, so a token cannot choose a weaker algorithm."""
RSA_BITS_MIN: Final = 2048
_PUBLIC_MEMBERS: Final = frozenset(("kty", "n", "e", "crv", "x", "y"))

NO_KEY: Final = "it has no key with an id that signs with RS256 or ES256"
"""The reason to refuse a JWK set without a usable key."""

Keys = Mapping[str, PyJWK]
"""Public keys by their id (`kid`)."""


def read_keys(document: bytes) -> Keys:
    """The usable keys of a JWK set, perhaps none. Raises `ValueError`, with a reason, for any other document."""
    try:
        parsed = orjson.loads(document)
    except orjson.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    listed = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it has no list of keys")  # noqa: TRY004 - a broken document, not our mistake
    found: dict[str, PyJWK] = {}
    for member in listed:
        key = _key(member) if isinstance(member, dict) else None
        if key is not None:
            found.setdefault(member["kid"], key)
    return MappingProxyType(found)


def _key(member: dict[str, Any]) -> PyJWK | None:
    kid = member.get("kid")
    algorithm = ALGORITHMS.get(str(member.get("kty")))
    if not isinstance(kid, str) or not kid or algorithm is None:
        return None
    use = member.get("use")
    if use not in {None, "sig"} or member.get("alg", algorithm) != algorithm:
        return None
    if member.get("crv", "P-256") != "P-256":
        return None
    public = {name: value for name, value in member.items() if name in _PUBLIC_MEMBERS}
    try:
        key = PyJWK(public, algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < RSA_BITS_MIN:
        return None
    return key


VERIFIED_KEPT_MAX: Final = 1024
"""Verified tokens in the cache. The oldest goes first."""
AUDIENCES: Final = frozenset(
    (
        *("https://storage.azure.com", "https://storage.azure.us", "https://storage.azure.cn"),
        *("https://cosmos.azure.com", "https://cosmos.azure.us", "https://cosmos.azure.cn"),
        "e406a681-f3d4-42a8-90b6-c2b029497af1",
    )
)
"""The audiences of tokens for Azure Storage, without the slash at the end of some (auth 0.2, 4.3)."""
ACCOUNT_DOMAINS: Final = (
    "core.windows.net",
    "core.chinacloudapi.cn",
    "core.usgovcloudapi.net",
    "core.cloudapi.de",
)
"""The domains of accounts: `https://NAME.table.DOMAIN` is an audience (auth 4.3)."""

_TOKEN = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_LEEWAY: Final = limits.TOKEN_LEEWAY_SECONDS * TICKS_PER_SECOND
_SECONDS_MAX: Final = 253_402_300_799
"""9999-12-31T23:59:59Z."""
_jws: Final = PyJWS()


class TokenRefused(Exception):
    """The text says why, for the server's log only, and quotes no part of the token."""


@dataclass(frozen=True, slots=True, eq=False)
class Issuer:
    """An issuer whose tokens this server accepts."""

    name: str
    """The `iss` of its tokens."""
    tenant: str | None
    """The `tid` of its tokens; None: any."""
    keys: Keys


class VerifiedToken(NamedTuple):
    """The content of a token whose signature was verified. Times are in ticks."""

    object_id: str
    tenant_id: str
    principals: tuple[str, ...]
    claimed: tuple[Role, ...]
    audiences: tuple[str, ...]
    not_before: int
    expiry: int


class TokenTrust:
    """Issuers, audiences, verified tokens. New keys make a new object, so no token stays verified by an old key."""

    def __init__(
        self,
        issuers: Iterable[Issuer],
        audiences: Iterable[str] = (),
        domains: Iterable[str] = (),
        custom_domains: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Accounts are also in `domains`, and at `custom_domains`: pairs of a host and its account."""
        self._domains = frozenset((*ACCOUNT_DOMAINS, *(domain.lower() for domain in domains)))
        self._hosts = {host.lower(): account for host, account in custom_domains}
        self._issuers: Mapping[str, Issuer] = {issuer.name: issuer for issuer in issuers}
        self._audiences = AUDIENCES.union(audience.removesuffix("/") for audience in audiences)
        self._verified: dict[bytes, VerifiedToken] = {}

    def missing_key_of(self, text: bytes) -> str | None:
        """The trusted issuer whose keys should be read again, if the unverified token names an unknown key of it."""
        if text in self._verified:
            return None
        try:
            header, payload = _unverified(text)
            issuer = self._issuer(payload)
        except TokenRefused:
            return None
        return issuer.name if header.get("kid") not in issuer.keys else None

    def check(self, text: bytes, account: str, now: int) -> VerifiedToken:
        """The content of a token that is valid for this account at `now` (ticks); else raises `TokenRefused`."""
        token = self._verified.get(text)
        if token is None:
            token = self._verify(text)
            while len(self._verified) >= VERIFIED_KEPT_MAX:
                del self._verified[next(iter(self._verified))]
            self._verified[text] = token
        if now >= token.expiry + _LEEWAY:
            raise TokenRefused("it has expired")
        if now < token.not_before - _LEEWAY:
            raise TokenRefused("it is not valid yet")
        if not any(self._is_here(audience, account) for audience in token.audiences):
            raise TokenRefused("it is for another audience")
        return token

    def _issuer(self, payload: dict[str, Any]) -> Issuer:
        issuer = payload.get("iss")
        found = self._issuers.get(issuer) if isinstance(issuer, str) else None
        if found is None:
            raise TokenRefused("its issuer is not trusted")
        return found

    def _verify(self, text: bytes) -> VerifiedToken:
        header, payload = _unverified(text)
        issuer = self._issuer(payload)
        kid = header.get("kid")
        key = issuer.keys.get(kid) if isinstance(kid, str) else None
        if key is None:
            raise TokenRefused("its issuer has no key with that id")
        try:
            verified = _jws.decode_complete(text, key, algorithms=[key.algorithm_name])
        except (PyJWTError, ValueError):
            raise TokenRefused("its signature is not that of the issuer's key") from None
        return _token(orjson.loads(verified["payload"]), issuer)

    def _is_here(self, audience: str, account: str) -> bool:
        name = audience.removesuffix("/")
        if name in self._audiences:
            return True
        if not name.startswith("https://"):
            return False
        host = name.removeprefix("https://").lower()
        prefix = f"{account}.table."
        if host.startswith(prefix):
            return host.removeprefix(prefix) in self._domains
        return self._hosts.get(host) == account


def _unverified(text: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(text) > limits.TOKEN_LENGTH_MAX:
        raise TokenRefused("it is too long")
    if not _TOKEN.fullmatch(text):
        raise TokenRefused("it is not a signed token")
    try:
        read = _jws.decode_complete(text, options={"verify_signature": False})
        payload = orjson.loads(read["payload"])
    except (PyJWTError, ValueError):
        raise TokenRefused("it cannot be read") from None
    # Base64 can encode a signature in several ways. Only the canonical one is accepted.
    as_written = base64.urlsafe_b64encode(read["signature"]).rstrip(b"=")
    if not isinstance(payload, dict) or not text.endswith(b"." + as_written):
        raise TokenRefused("it cannot be read")
    return read["header"], payload


def _token(claims: dict[str, Any], issuer: Issuer) -> VerifiedToken:
    """The content of a verified token; raises `TokenRefused` if a necessary claim is missing or wrong."""
    tenant = _text(claims, "tid")
    if issuer.tenant is not None and tenant.lower() != issuer.tenant.lower():
        raise TokenRefused("it is of another tenant")
    object_id = _text(claims, "oid") or _text(claims, "sub")
    if not object_id:
        raise TokenRefused("it does not name its holder")
    roles = dict.fromkeys(filter(None, map(find_role, _texts(claims, "roles"))))
    # With a scope, the application acts for a user. Without one, it acts for itself, and its ids count (auth 4.3).
    own = () if "scp" in claims else (_text(claims, "appid"), _text(claims, "azp"))
    return VerifiedToken(
        object_id,
        tenant,
        (object_id, *filter(None, own), *_texts(claims, "groups")),
        tuple(roles),
        _texts(claims, "aud"),
        _instant(claims, "nbf") if "nbf" in claims else 0,
        _instant(claims, "exp"),
    )


def _text(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name, "")
    if not isinstance(value, str):
        raise TokenRefused(f"its {name} is not a text")
    return value


def _texts(claims: dict[str, Any], name: str) -> tuple[str, ...]:
    value = claims.get(name, [])
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in listed):
        raise TokenRefused(f"its {name} is not a list of texts")
    return tuple(listed)


def _instant(claims: dict[str, Any], name: str) -> int:
    """The ticks of a claim in seconds since 1970, perhaps with a fraction (RFC 7519, 2)."""
    seconds = claims.get(name)
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TokenRefused(f"it has no {name}")
    if not isfinite(seconds) or not 0 <= seconds <= _SECONDS_MAX:
        raise TokenRefused(f"its {name} is not a time")
    return int(seconds * TICKS_PER_SECOND) + UNIX_EPOCH_TICKS


Members = Mapping[str, Any]


def make_issuer() -> dict[str, Any]:
    """A new issuer in its stored form. Its name is unique, so that this server accepts no other server's tokens."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS_MIN)
    public = RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    kid = secrets.token_hex(16)
    return {
        "issuer": f"urn:tablestone:{uuid.uuid4()}",
        "keys": [{**public, "kid": kid, "use": "sig", "alg": "RS256"}],
        "private": {"kid": kid, "pem": pem.decode("ascii")},
    }


def own_issuer(members: Members) -> Issuer:
    """A stored issuer as a trusted one, for tokens of any tenant."""
    return Issuer(members["issuer"], None, read_keys(orjson.dumps({"keys": members["keys"]})))


def require_whole(members: Members) -> None:
    """Raise `ValueError`, without any part of a key in its text, if a stored issuer is damaged."""
    if not isinstance(members["issuer"], str):
        raise ValueError("its name is not a text")  # noqa: TRY004 - a broken document, not our mistake
    issuer = own_issuer(members)
    private = members["private"]
    kid, pem = private["kid"], str(private["pem"]).encode("utf-8")
    try:
        public = serialization.load_pem_private_key(pem, None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("its private key cannot be read") from None
    if kid not in issuer.keys or issuer.keys[kid].key != public:
        raise ValueError("its private key belongs to none of its public keys")


def issue_token(
    members: Members,
    *,
    principal: str,
    roles: Iterable[str],
    tenant: str,
    audience: str,
    lifetime_seconds: int,
    now: int,
) -> str:
    """A token of a stored issuer, valid from `now` (ticks), with the claims of Entra ID's tokens."""
    issued_at = (now - UNIX_EPOCH_TICKS) // TICKS_PER_SECOND
    claims = {
        "iss": members["issuer"],
        "aud": audience,
        "iat": issued_at,
        "nbf": issued_at,
        "exp": issued_at + lifetime_seconds,
        "oid": principal,
        "sub": principal,
        "tid": tenant,
        "roles": list(roles),
        "ver": "1.0",
    }
    private = members["private"]
    return jwt.encode(claims, private["pem"], "RS256", {"kid": private["kid"]})
