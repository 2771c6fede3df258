"""SharedKey signing for the tests, written from the protocol and not from the server's code (auth 1.1 to 1.5).

Uses only the standard library, so that a test can sign bytes which no HTTP client would send. Must not import anything
of tablestone.
"""

import base64
import hashlib
import hmac
from email.utils import formatdate

VERSION = "2019-02-02"


def signature(key: str, string_to_sign: str) -> str:
    """Base64 of HMAC-SHA256 over the UTF-8 text, keyed with the decoded account key (auth 1.1)."""
    mac = hmac.new(base64.b64decode(key), string_to_sign.encode(), hashlib.sha256)
    return base64.b64encode(mac.digest()).decode("ascii")


def canonicalized_resource(account: str, target: str) -> str:
    """The account and the path exactly as sent, and of the query only `comp` (auth 1.5)."""
    path, _, query = target.partition("?")
    resource = f"/{account}{path or '/'}"
    for option in query.split("&"):
        name, _, value = option.partition("=")
        if name.lower() == "comp":
            return f"{resource}?comp={value}"
    return resource


def shared_key(
    account: str,
    key: str,
    *,
    method: str,
    target: str,
    date: str,
    content_type: str = "",
    content_md5: str = "",
) -> str:
    """The value of `Authorization` (auth 1.2)."""
    resource = canonicalized_resource(account, target)
    string_to_sign = f"{method}\n{content_md5}\n{content_type}\n{date}\n{resource}"
    return f"SharedKey {account}:{signature(key, string_to_sign)}"


def shared_key_lite(account: str, key: str, *, target: str, date: str) -> str:
    """The value of `Authorization` under the lite scheme, which signs only date and resource (auth 1.3)."""
    string_to_sign = f"{date}\n{canonicalized_resource(account, target)}"
    return f"SharedKeyLite {account}:{signature(key, string_to_sign)}"


def signed_headers(
    account: str,
    key: str,
    *,
    method: str,
    target: str,
    content_type: str = "",
    date: str | None = None,
) -> list[tuple[str, str]]:
    """The headers of every signed request, as pairs, so that a test may repeat one."""
    date = date or formatdate(usegmt=True)
    authorization = shared_key(
        account, key, method=method, target=target, date=date, content_type=content_type
    )
    headers = [
        ("Authorization", authorization),
        ("x-ms-date", date),
        ("x-ms-version", VERSION),
        ("Accept", "application/json;odata=minimalmetadata"),
    ]
    if content_type:
        headers.append(("Content-Type", content_type))
    return headers
