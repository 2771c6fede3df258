"""The public keys of a token issuer, read from the document in which the issuer publishes them (a JWK set, RFC 7517).

Only keys of accepted algorithms are read: RSA of 2,048 bits and more, and P-256. Symmetric keys are ignored: anyone who
can read the document could sign tokens with one.
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
"""The algorithm of each type of key; a token cannot choose its algorithm."""
RSA_BITS_MIN: Final = 2048
_PUBLIC_MEMBERS: Final = frozenset(("kty", "n", "e", "crv", "x", "y"))

NO_KEY: Final = "it has no key with an id that signs with RS256 or ES256"
"""The reason for refusing a JWK set that has no usable key."""

Keys = Mapping[str, PyJWK]
"""Public keys by their id (`kid`)."""


def read_keys(document: bytes) -> Keys:
    """The usable keys of a JWK set, perhaps none; raises `ValueError` with a reason if the document is no JWK set."""
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
    """The key, or None if it is not usable for tokens."""
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
