"""The parsers of credentials, as functions of bytes in the form of `parser`.

The tests' own code signs whatever the input says, so that the checks after the signature are reached.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sas_signing import account_string_to_sign, table_string_to_sign
from signing import shared_key, shared_key_lite, signature
from stress.fuzz.parser import ACCOUNT, NOW, Parser, headers_of
from stress.property.signed_requests import KEY
from tablestone.auth.account import Account
from tablestone.auth.authenticate import authenticate
from tablestone.auth.bearer_tokens import Issuer, TokenRefused, TokenTrust, read_keys
from tablestone.auth.permissions import OWNER
from tablestone.auth.shared_access_signature import TableSasOfPolicy
from tablestone.model.operations import AccessPolicy, SignedIdentifier
from tablestone.wire.address import parse_query_string
from tablestone.wire.messages import RawRequest

_ACCOUNT: Final = Account(ACCOUNT, [KEY])
_VERSION: Final = "2019-02-02"
_POLICIES: Final = (SignedIdentifier("p1", AccessPolicy(None, NOW * 2, "r")),)


def _sas(content: bytes) -> None:
    """A query string, to which the right signature is added."""
    given = dict(parse_query_string(content))
    text = {"sv": _VERSION, **given}
    try:
        to_sign = (table_string_to_sign if "tn" in given else account_string_to_sign)(ACCOUNT, text)
    except KeyError:
        to_sign = ""
    parameters = {**given, "sig": signature(KEY, to_sign)}
    request = RawRequest("GET", f"/{ACCOUNT}/Table()".encode(), content, {}, "http", "127.0.0.1")
    caller = authenticate(request, _ACCOUNT, parameters, _VERSION, NOW)
    if isinstance(caller, TableSasOfPolicy):
        caller.completed(_POLICIES, request, NOW)


def _authorization(content: bytes) -> None:
    """The path with its query, and below it the headers as they are, with an Authorization."""
    target, _, lines = content.partition(b"\n")
    path, _, query = target.partition(b"?")
    request = RawRequest("GET", b"/" + path, query, headers_of(lines), "https", "127.0.0.1")
    authenticate(request, _ACCOUNT, parse_query_string(query), _VERSION, NOW)


def _signed_header(content: bytes) -> None:
    """The same, but signed: the date and the content headers decide whether it is accepted."""
    target, _, lines = content.partition(b"\n")
    path, _, query = target.partition(b"?")
    path = b"/" + path
    headers = headers_of(lines)
    date = headers.get(b"x-ms-date", b"").decode("latin-1")
    named = (path + b"?" + query).decode("latin-1")
    with suppress(UnicodeEncodeError, IndexError):
        sign = {
            "method": "GET",
            "target": named,
            "date": date,
            "content_type": headers.get(b"content-type", b"").decode("latin-1"),
            "content_md5": headers.get(b"content-md5", b"").decode("latin-1"),
        }
        lite = headers.get(b"lite") is not None
        headers[b"authorization"] = (
            shared_key_lite(ACCOUNT, KEY, target=named, date=date)
            if lite
            else shared_key(ACCOUNT, KEY, **sign)
        ).encode("latin-1")
    request = RawRequest("GET", path, query, headers, "https", "127.0.0.1")
    caller = authenticate(request, _ACCOUNT, parse_query_string(query), _VERSION, NOW)
    assert caller is OWNER


def _trust() -> Callable[[bytes], None]:
    keys = (
        b'{"keys":[{"kty":"oct","kid":"o","k":"AAAA"},{"kty":"EC","crv":"P-256","kid":"k","alg":"ES256",'
        b'"x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}'
    )
    trust = TokenTrust([Issuer("https://issuer.example/", None, read_keys(keys))])

    def check(content: bytes) -> None:
        trust.missing_key_of(content)
        trust.check(content, ACCOUNT, NOW)

    return check


def _keys(content: bytes) -> None:
    read_keys(content)


AUTH_PARSERS: Final[dict[str, Parser]] = {
    "sas": Parser(
        _sas,
        (
            b"sv=2019-02-02&ss=t&srt=sco&sp=rwdlacup&st=2016-01-01&se=2034-05-06T00:00:00Z&spr=https,http&sip=127.0.0.1",
            b"sv=2019-02-02&tn=Table&sp=raud&se=2034-05-06T00:00:00Z&spk=a&srk=1&epk=b&erk=9",
            b"sv=2019-02-02&tn=Table&si=p1",
            b"sv=2025-07-05&tn=Table&sp=r&se=2034-05-06&skoid=1&sktid=t&skt=2024-05-01T00:00:00Z&"
            b"ske=2024-05-08T00:00:00Z&sks=t&skv=2025-07-05",
        ),
        (
            b"&sv=",
            b"&se=",
            b"&st=",
            b"&sp=",
            b"&si=",
            b"&sip=",
            b"&spr=",
            b"&tn=",
            b"&spk=",
            b"&skoid=",
            b"2014-02-14",
        ),
    ),
    "authorization": Parser(
        _authorization,
        (
            b"devstoreaccount1/Table()?comp=acl\nauthorization: SharedKey devstoreaccount1:AAAA\n"
            b"x-ms-date: Thu, 05 Jan 2017 03:25:45 GMT",
            b"devstoreaccount1/Table\nauthorization: Bearer a.b.c",
        ),
        (b"SharedKeyLite ", b"SharedKey ", b"Bearer ", b"x-ms-date:", b"date:", b"content-md5:"),
    ),
    "signed-header": Parser(
        _signed_header,
        (
            b"devstoreaccount1/Table()?comp=acl\nx-ms-date: Wed, 27 Dec 2017 19:33:20 GMT\ncontent-type: a/b",
            b"devstoreaccount1/%41?a=b\nlite: 1\nx-ms-date: Wed, 27 Dec 2017 19:33:20 +0000",
        ),
        (
            b"x-ms-date:",
            b"date:",
            b"content-md5:",
            b"comp=",
            b"%",
            b"GMT",
            b"-2359",
            b"Dec",
            b"9999",
            b"0001",
        ),
    ),
    "token-of-a-user": Parser(
        _trust(),
        (
            b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlLyJ9.AAAA",
            b"eyJhbGciOiJub25lIn0.e30.AA",
        ),
        (b".", b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ", b"eyJ", b"=="),
        (TokenRefused,),
    ),
    "keys-of-an-issuer": Parser(
        _keys,
        (
            b'{"keys":[{"kty":"EC","crv":"P-256","kid":"k","alg":"ES256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",'
            b'"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}',
        ),
        (
            b'"kty":',
            b'"RSA"',
            b'"n":"',
            b'"e":"AQAB"',
            b'"kid":',
            b'"alg":',
            b'"use":"sig"',
            b"null",
        ),
        (ValueError,),
    ),
}
