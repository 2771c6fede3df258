"""The strings to sign: one pure function for each scheme of request signing (auth 1.2, 1.3, 1.5).

Works on the bytes exactly as they were on the wire: decoding them would break signatures. Knows no keys.
"""

from __future__ import annotations

from tablestone.wire.http.messages import Headers


def canonicalized_resource(account: bytes, raw_path: bytes, comp: bytes | None) -> bytes:
    """`/`, the account, the path as on the wire, and of the query only `?comp=` (auth 1.5)."""
    path = raw_path or b"/"
    return b"/" + account + path if comp is None else b"/" + account + path + b"?comp=" + comp


def string_to_sign_shared_key(method: str, headers: Headers, date: bytes, resource: bytes) -> bytes:
    """Verb, Content-MD5, Content-Type, date and resource, each on a line (auth 1.2)."""
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
