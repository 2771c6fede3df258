"""Signed requests of every kind, and the parts that a signature covers: written from the specification.

`signed_text` reads a request as sent, and returns what its signature covers, computed by the tests' own code. Requests
with the same signed text are one to their signer; the server must reject any other. Does not use tablestone.
"""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote

from sas_signing import (
    account_string_to_sign,
    completed,
    query_of,
    signed,
    signed_by_user,
    table_string_to_sign,
    user_delegation_string_to_sign,
)
from signing import canonicalized_resource, shared_key, shared_key_lite

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SECOND_KEY = "c2Vjb25kIGtleSBvZiB0aGUgZGV2ZWxvcG1lbnQgYWNjb3VudA=="
OTHER_KEY = "YSBrZXkgdGhhdCBpcyBvZiBubyBhY2NvdW50IGF0IGFsbC4uLg=="
DATE = "Mon, 06 May 2024 07:08:09 GMT"
POLICY = "p1"
"""The only stored access policy."""
USER = {
    "skoid": "11111111-2222-3333-4444-555555555555",
    "sktid": "tenant",
    "skt": "2024-05-01T00:00:00Z",
    "ske": "2024-05-08T00:00:00Z",
    "sks": "t",
    "skv": "2025-07-05",
}
"""The fields of signatures that describe the only user delegation key."""


@dataclass(frozen=True)
class Request:
    """A request as sent, without a body."""

    method: str
    path: bytes
    query: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)


def _by_header(method: str, target: str, scheme: str, key: str, **headers: str) -> Request:
    if scheme == "SharedKey":
        authorization = shared_key(ACCOUNT, key, method=method, target=target, date=DATE, **headers)
    else:
        authorization = shared_key_lite(ACCOUNT, key, target=target, date=DATE)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent |= {"authorization": authorization, "x-ms-date": DATE}
    path, _, query = target.partition("?")
    wire = {name.encode(): value.encode() for name, value in sent.items()}
    return Request(method, path.encode(), query.encode(), wire)


def _by_sas(key: str, **parameters: str) -> Request:
    signature = signed(ACCOUNT, key, completed(parameters))
    return Request("GET", f"/{ACCOUNT}/tab()".encode(), query_of(signature).encode())


def _by_sas_of_cpp() -> Request:
    """Parameters in alphabetical order, with few characters percent-encoded: as the C++ SDK does it (wire 12)."""
    given = {"sv": "2019-07-07", "spr": "https,http", "st": "2024-05-06T00:00:00Z", "sp": "raud"}
    parameters = signed(ACCOUNT, KEY, {**given, "se": "2024-05-07T00:00:00Z", "tn": "tab"})
    pairs = [f"{name}={quote(parameters[name], safe=_KEPT)}" for name in sorted(parameters)]
    return Request("GET", f"/{ACCOUNT}/tab()".encode(), "&".join(pairs).encode())


_KEPT = "-._~!$'()*,;/:@?"


def _by_user(key: str, **parameters: str) -> Request:
    given = completed({"sv": "2025-07-05", **parameters, **USER})
    query = query_of(signed_by_user(ACCOUNT, key, given))
    return Request("GET", f"/{ACCOUNT}/tab()".encode(), query.encode())


def signed_requests(user_key: str) -> list[Request]:
    """Accepted requests: each way to sign, with each parameter that has a meaning in it.

    `user_key` is the key of `USER`, in base64.
    """
    root = f"/{ACCOUNT}"
    found = [
        _by_header("GET", f"{root}/tab()?$top=5", scheme, key)
        for scheme in ("SharedKey", "SharedKeyLite")
        for key in (KEY, SECOND_KEY)
    ]
    for scheme in ("SharedKey", "SharedKeyLite"):
        found += [
            _by_header("GET", f"{root}/tab?comp=acl", scheme, KEY),
            _by_header("DELETE", f"{root}/Tables('tab')", scheme, KEY),
            _by_header(
                "POST", f"{root}/$batch", scheme, KEY, content_type="multipart/mixed; boundary=b"
            ),
            _by_header(
                "PATCH",
                f"{root}/tab%28PartitionKey%3D%27P1%27%2CRowKey%3D%27R1%27%29",
                scheme,
                KEY,
                content_type="application/json",
            ),
            _by_header(
                "PUT",
                f"{root}/tab(PartitionKey='a%20b',RowKey='%C3%BC%2B')",
                scheme,
                KEY,
                content_type="application/json",
                content_md5="MDEyMzQ1Njc4OWFiY2RlZg==",
            ),
        ]
    everything = {"st": "2020-01-01", "sip": "127.0.0.1-127.0.0.9", "spr": "https,http"}
    bounds = {"spk": "a b", "srk": "1", "epk": "mü", "erk": "9"}
    found += [
        _by_sas(KEY, ss="t", srt="o", sp="r"),
        _by_sas(SECOND_KEY, ss="bt", srt="sco", sp="rwdlacup"),
        _by_sas(KEY, ss="t", srt="co", sp="rl", **everything),
        _by_sas(KEY, ss="t", srt="o", sp="rau", sv="2021-06-08", ses="scope", **everything),
        _by_sas(KEY, tn="tab", sp="r"),
        _by_sas(SECOND_KEY, tn="Tab", sp="raud", **bounds, **everything),
        _by_sas(KEY, tn="tab", sp="ra", spk="a", epk="b"),
        _by_sas(KEY, tn="tab", sp="r", epk="b", sv="2018-11-09"),
        _by_sas(KEY, tn="tab", sp="raud", sv="2015-02-21", spk="a", srk="1"),
        _by_sas(KEY, tn="tab", sp="raud", sv="2014-02-14", **bounds),
        _by_sas(KEY, tn="tab", sp="d", sv="2012-02-12"),
        _by_sas(KEY, tn="tab", si=POLICY, se="-"),
        _by_sas(KEY, tn="tab", si=POLICY, se="-", sv="2025-07-05", **bounds),
        _by_sas_of_cpp(),
        _by_user(user_key, tn="tab", sp="r"),
        _by_user(user_key, tn="Tab", sp="raud", **bounds, **everything),
    ]
    return found


def signed_text(request: Request) -> tuple[str, ...] | None:
    """The text that the signature of a request covers, and the signature; None if the request cannot be read."""
    if b"authorization" in request.headers:
        return _text_of_header(request)
    try:
        pairs = parse_qsl(
            request.query.decode("ascii"), keep_blank_values=True, errors="strict", separator="&"
        )
    except (UnicodeDecodeError, ValueError):
        return None
    parameters = dict(pairs)
    if len(parameters) != len(pairs) or not {"sig", "sv"} <= parameters.keys():
        return None
    signature = parameters["sig"].replace(" ", "+")
    if "skoid" in parameters:
        if "tn" not in parameters:
            return None
        text = user_delegation_string_to_sign(ACCOUNT, parameters)
        return "user delegation SAS", text, signature
    if "ss" in parameters or "srt" in parameters:
        return "account SAS", account_string_to_sign(ACCOUNT, parameters), signature
    if "tn" not in parameters:
        return None
    return "table SAS", table_string_to_sign(ACCOUNT, parameters), signature


def _text_of_header(request: Request) -> tuple[str, ...] | None:
    headers = {name: value.decode("latin-1") for name, value in request.headers.items()}
    scheme, _, credentials = headers[b"authorization"].partition(" ")
    name, _, signature = credentials.strip().rpartition(":")
    date = headers.get(b"x-ms-date", "")
    query = request.query.decode("latin-1")
    try:
        decoded = parse_qsl(query, keep_blank_values=True, errors="strict", separator="&")
    except ValueError:
        return None
    comp = [value for key, value in decoded if key.lower() == "comp"]
    if len(comp) > 1:
        return None
    target = request.path.decode("latin-1") + (f"?comp={comp[0]}" if comp else "")
    text = f"{date}\n{canonicalized_resource(ACCOUNT, target)}"
    if scheme.lower() == "sharedkey":
        content = (headers.get(b"content-md5", ""), headers.get(b"content-type", ""))
        text = "\n".join([request.method, *content, text])
    return scheme.lower(), name, text, signature
