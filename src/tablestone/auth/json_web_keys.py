"""The public keys of a token issuer, from the document in which issuers publish them (a JWK set, RFC 7517).

Only keys that can sign tokens here are taken: RSA of 2,048 bits and more, and P-256. A symmetric key is never one, so
that no token can be signed with what is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

ALGORITHMS: Final = {"RSA": "RS256", "EC": "ES256"}
"""By the type of the key; no token chooses its algorithm."""
RSA_BITS_MIN: Final = 2048
_PUBLIC_MEMBERS: Final = frozenset(("kty", "n", "e", "crv", "x", "y"))

NO_KEY: Final = "it has no key with an id that signs with RS256 or ES256"
"""What is wrong with a set that is given for its keys and has none."""

Keys = Mapping[str, PyJWK]
"""Public keys by their id (`kid`)."""


def read_keys(document: bytes) -> Keys:
    """The keys of a JWK set that can sign tokens, perhaps none; raises `ValueError` with a reason if it is no set."""
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
    """The key, None if tokens cannot be signed with it."""
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
