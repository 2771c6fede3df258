"""The tests' own token issuer: keys, JWK sets and tokens, valid and invalid, written from RFC 7515 and 7517.

It shares nothing with the server's code and uses no JWT library, so that it can write tokens that no library would.
"""

import base64
import hashlib
import hmac
import json
from typing import Any, Final

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ISSUER: Final = "https://sts.windows.net/11111111-2222-4333-8444-555555555555/"
TENANT: Final = "11111111-2222-4333-8444-555555555555"
AUDIENCE: Final = "https://storage.azure.com"
OBJECT_ID: Final = "99999999-8888-4777-8666-555555555555"

Claims = dict[str, Any]


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _number(value: int) -> str:
    return base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def segment(members: object) -> str:
    return base64url(json.dumps(members, separators=(",", ":")).encode())


class RsaKey:
    """An RSA key that signs with RS256."""

    algorithm = "RS256"

    def __init__(self, kid: str, bits: int = 2048) -> None:
        self.kid = kid
        self._private = rsa.generate_private_key(public_exponent=65537, key_size=bits)

    def jwk(self, **more: Any) -> dict[str, Any]:
        numbers = self._private.public_key().public_numbers()
        public = {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        return {**public, "kid": self.kid, "use": "sig", **more}

    def public_pem(self) -> bytes:
        return self._private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def signature(self, text: bytes) -> bytes:
        return self._private.sign(text, padding.PKCS1v15(), hashes.SHA256())


class EcKey:
    """A P-256 key that signs with ES256."""

    algorithm = "ES256"

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self._private = ec.generate_private_key(ec.SECP256R1())

    def jwk(self, **more: Any) -> dict[str, Any]:
        numbers = self._private.public_key().public_numbers()
        x, y = (base64url(value.to_bytes(32, "big")) for value in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": self.kid, **more}

    def signature(self, text: bytes) -> bytes:
        r, s = decode_dss_signature(self._private.sign(text, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


Key = RsaKey | EcKey


def key_set(*keys: Key) -> bytes:
    """The document that an issuer publishes."""
    return json.dumps({"keys": [key.jwk() for key in keys]}).encode()


def claims_at(now: float, **changed: Any) -> Claims:
    """The claims of a valid token at this time (seconds since 1970); None removes one."""
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "nbf": int(now) - 300,
        "iat": int(now) - 300,
        "exp": int(now) + 3600,
        "oid": OBJECT_ID,
        "tid": TENANT,
        "roles": ["Storage Table Data Contributor"],
        **changed,
    }
    return {name: value for name, value in claims.items() if value is not None}


def signed(key: Key, claims: object, **header: Any) -> str:
    """A token; `header` overrides its header, and None removes a member."""
    members = {"typ": "JWT", "alg": key.algorithm, "kid": key.kid, **header}
    named = {name: value for name, value in members.items() if value is not None}
    text = f"{segment(named)}.{segment(claims)}"
    return f"{text}.{base64url(key.signature(text.encode()))}"


def signed_with_nothing(key: Key, claims: Claims, algorithm: str = "none") -> str:
    return f"{segment({'alg': algorithm, 'kid': key.kid})}.{segment(claims)}."


def signed_with_the_public_key(key: RsaKey, claims: Claims, algorithm: str = "HS256") -> str:
    """A token that deceives a verifier which lets the token choose the algorithm."""
    text = f"{segment({'alg': algorithm, 'kid': key.kid})}.{segment(claims)}"
    return f"{text}.{base64url(hmac.digest(key.public_pem(), text.encode(), hashlib.sha256))}"
