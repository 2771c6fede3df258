"""SharedKey and SharedKeyLite: one check, two strings to sign (auth 1).

Either key of the account may have signed. Signatures are compared in constant time. There is no defence against replay,
because clients repeat a signature when they retry (auth 0.1).
"""

import functools
import hmac
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from tablestone import limits
from tablestone.auth.account import Account, is_account_name
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tablestone.model.errors import StorageError
from tablestone.wire.messages import Headers, RawRequest


def canonicalized_resource(account: bytes, raw_path: bytes, comp: bytes | None) -> bytes:
    """`/`, the account, the path as on the wire, and of the query only `?comp=` (auth 1.5)."""
    path = raw_path or b"/"
    return b"/" + account + path if comp is None else b"/" + account + path + b"?comp=" + comp


def string_to_sign_shared_key(method: str, headers: Headers, date: bytes, resource: bytes) -> bytes:
    """Verb, Content-MD5, Content-Type, date and resource, one on each line (auth 1.2)."""
    return b"\n".join(
        (
            method.encode("latin-1"),
            headers.get(b"content-md5", b""),
            headers.get(b"content-type", b""),
            date,
            resource,
        )
    )


def string_to_sign_shared_key_lite(
    _method: str, _headers: Headers, date: bytes, resource: bytes
) -> bytes:
    """Date and resource only (auth 1.3)."""
    return date + b"\n" + resource


_SKEW_TICKS: Final = limits.CLOCK_SKEW_SECONDS_MAX * TICKS_PER_SECOND
_STRINGS_TO_SIGN: Final[dict[bytes, Callable[[str, Headers, bytes, bytes], bytes]]] = {
    b"sharedkey": string_to_sign_shared_key,
    b"sharedkeylite": string_to_sign_shared_key_lite,
}
SCHEMES: Final = {b"sharedkey": "shared-key", b"sharedkeylite": "shared-key-lite"}
"""The schemes that this module checks, in lower case, each with its name in logs and metrics."""


def _parse_date(text: bytes) -> int | None:
    try:
        moment = parsedate_to_datetime(text.decode("ascii"))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp()) * TICKS_PER_SECOND + UNIX_EPOCH_TICKS


_SHORT: Final = 64
"""Bytes of the longest date that is cached. Clients send 29; a caller without a key must not fill the memory."""
# Within a second, all clients send the same text.
_parse_short_date = functools.lru_cache(maxsize=1024)(_parse_date)


def require_shared_key(
    request: RawRequest,
    account: Account,
    scheme: bytes,
    credentials: bytes,
    comp: bytes | None,
    now: int,
) -> None:
    """Raise `AuthenticationFailed` unless a key of the account signed the request. `now` is in ticks.

    `credentials` follow the scheme in Authorization. Without a colon in them, the error is `InvalidAuthenticationInfo`.
    """
    name, colon, given = credentials.rpartition(b":")
    if not colon:
        raise StorageError("InvalidAuthenticationInfo")
    headers = request.headers
    date = headers.get(b"x-ms-date") or headers.get(b"date", b"")
    signed_at = _parse_short_date(date) if len(date) <= _SHORT else _parse_date(date)
    if signed_at is None:
        raise _refused("no date that can be read", _readable(date))
    if abs(now - signed_at) > _SKEW_TICKS:
        raise _refused("the date is more than 15 minutes from the server's", _readable(date))
    if name != account.name_bytes:
        # Do not log an invalid name: it may be part of a signature or of a token.
        is_name = is_account_name(name.decode("latin-1"))
        who = f"account {_readable(name)}" if is_name else "no account"
        raise _refused("signed by another account than the URL names", who)
    string_to_sign = _STRINGS_TO_SIGN[scheme]
    text = b""
    for raw_path in signed_paths(request.raw_path, account.name_bytes):
        resource = canonicalized_resource(name, raw_path, comp)
        text = string_to_sign(request.method, headers, date, resource)
        for key in account.keys:
            if hmac.compare_digest(key.signature(text), given):
                return
    raise _refused("no key of the account gives the signature", _readable(text))


def _readable(sent: bytes) -> str:
    return repr(sent.decode("latin-1"))


def _refused(reason: str, detail: str) -> StorageError:
    return StorageError("AuthenticationFailed", reason=reason, detail=detail)


def signed_paths(raw_path: bytes, account: bytes) -> tuple[bytes, ...]:
    """The paths that a client may have signed: the one on the wire and, on the secondary, the primary's (auth 1.5)."""
    primary = b"/" + account
    secondary = primary + b"-secondary"
    if not raw_path.startswith(secondary):
        return (raw_path,)
    rest = raw_path[len(secondary) :]
    if rest.startswith(primary + b"/"):
        return rest, raw_path
    return primary + rest, raw_path
