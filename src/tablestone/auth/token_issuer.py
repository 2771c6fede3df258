"""The server as its own token issuer, so that code that uses tokens can be tried without a cloud (auth 4).

A key pair is created at first use. `members` is its stored form, with the private key apart from the public one: a
server that only checks tokens never reads the private key. Any user who can read the private key can issue any token.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

import jwt
import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tablestone.auth.bearer_tokens import RSA_BITS_MIN, Issuer, read_keys
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS

ALGORITHM: Final = "RS256"

Members = Mapping[str, Any]


def make_issuer() -> dict[str, Any]:
    """A new issuer in its stored form. Its name is unique, so that tokens of another server are not accepted."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS_MIN)
    public = RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    kid = secrets.token_hex(16)
    return {
        "issuer": f"urn:tablestone:{uuid.uuid4()}",
        "keys": [{**public, "kid": kid, "use": "sig", "alg": ALGORITHM}],
        "private": {"kid": kid, "pem": pem.decode("ascii")},
    }


def own_issuer(members: Members) -> Issuer:
    """The stored issuer as a trusted issuer, for tokens of any tenant."""
    return Issuer(members["issuer"], None, read_keys(orjson.dumps({"keys": members["keys"]})))


def require_whole(members: Members) -> None:
    """Raise `ValueError` if tokens of a stored issuer could not be accepted; the error quotes no part of the keys."""
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
    """A token of the stored issuer, valid from `now` (ticks) on, with the claims of Entra ID's tokens."""
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
    return jwt.encode(claims, private["pem"], ALGORITHM, {"kid": private["kid"]})
