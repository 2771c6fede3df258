"""Ways to change a signed request: those of a forger, a proxy or a broken client.

A mutation may leave the signed text unchanged; the caller has to compare `signed_requests.signed_text`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from urllib.parse import parse_qsl, quote

from sas_signing import query_of, signed
from stress.property.signed_requests import ACCOUNT, OTHER_KEY, Request

Mutation = Callable[[Random, Request, list[Request]], Request]

_CHARACTERS = b"abcxyzABCXYZ0123456789+/=-_.:;,'&?%!*()~ \n\r\t\0"
_NAMES = (
    *("sv", "ss", "srt", "sp", "st", "se", "sip", "spr", "ses", "tn", "spk", "srk", "epk", "erk"),
    *(
        "si",
        "sig",
        "skoid",
        "sktid",
        "skt",
        "ske",
        "sks",
        "skv",
        "skdutid",
        "sduoid",
        "comp",
        "api-version",
        "SP",
        "Sig",
        "sr",
    ),
)
_VALUES = (
    *("", "r", "raud", "rwdlacup", "t", "bqtf", "sco", "2012-02-12", "2015-02-21", "2019-02-02"),
    *("2020-12-06", "2026-06-06", "2040-01-01", "1999-01-01", "https", "https,http", "0.0.0.0"),
    *(
        "2025-07-05",
        "11111111-2222-3333-4444-555555555555",
        "127.0.0.1",
        "tab",
        "TAB",
        "other",
        "p1",
        "P1",
        "\n",
        "a\nb",
        "\0",
        "zzz",
        "ü",
        "acl",
    ),
)
_METHODS = ("GET", "POST", "PUT", "DELETE", "MERGE", "PATCH", "HEAD", "get")


def _edited(random: Random, text: bytes) -> bytes:
    """Add, remove or change a character; cut a piece off, double it, or switch its case."""
    at = random.randrange(len(text) + 1)
    other = bytes((random.choice(_CHARACTERS),))
    match random.randrange(7):
        case 0:
            return text[:at] + other + text[at:]
        case 1:
            return text[:at] + text[at + 1 :]
        case 2:
            return text[:at] + other + text[at + 1 :]
        case 3:
            return text[:at]
        case 4:
            return text[at:]
        case 5:
            return text[:at] + text[at : at + 1].swapcase() + text[at + 1 :]
        case _:
            return text[:at] + text[at:] * 2


def _pairs(request: Request) -> list[tuple[str, str]]:
    return parse_qsl(request.query.decode("latin-1"), keep_blank_values=True)


def _with(request: Request, pairs: list[tuple[str, str]]) -> Request:
    query = "&".join(f"{quote(name, safe='$')}={quote(value, safe='')}" for name, value in pairs)
    return replace(request, query=query.encode())


def edit_query(random: Random, request: Request, _pool: list[Request]) -> Request:
    return replace(request, query=_edited(random, request.query))


def edit_path(random: Random, request: Request, _pool: list[Request]) -> Request:
    return replace(request, path=b"/" + _edited(random, request.path[1:]))


def edit_header(random: Random, request: Request, _pool: list[Request]) -> Request:
    if not request.headers:
        return edit_query(random, request, _pool)
    name = random.choice(sorted(request.headers))
    return replace(
        request, headers={**request.headers, name: _edited(random, request.headers[name])}
    )


def edit_signature(random: Random, request: Request, _pool: list[Request]) -> Request:
    """Change the base64 only, where a difference is small."""
    if not request.headers:
        pairs = _pairs(request)
        edited = _edited(random, dict(pairs)["sig"].encode()).decode("latin-1")
        return _with(request, [(key, edited if key == "sig" else text) for key, text in pairs])
    authorization = request.headers[b"authorization"]
    head, _, signature = authorization.rpartition(b":")
    edited_header = head + b":" + _edited(random, signature)
    return replace(request, headers={**request.headers, b"authorization": edited_header})


def change_method(random: Random, request: Request, _pool: list[Request]) -> Request:
    return replace(request, method=random.choice(_METHODS))


def drop(random: Random, request: Request, _pool: list[Request]) -> Request:
    """Remove a header or a parameter."""
    if request.headers:
        gone = random.choice(sorted(request.headers))
        kept = {name: value for name, value in request.headers.items() if name != gone}
        return replace(request, headers=kept)
    pairs = _pairs(request)
    del pairs[random.randrange(len(pairs))]
    return _with(request, pairs)


def add(random: Random, request: Request, _pool: list[Request]) -> Request:
    """Add a parameter, which may be there already."""
    pairs = _pairs(request)
    pairs.insert(random.randrange(len(pairs) + 1), (random.choice(_NAMES), random.choice(_VALUES)))
    return _with(request, pairs)


def set_value(random: Random, request: Request, _pool: list[Request]) -> Request:
    pairs = _pairs(request)
    if not pairs:
        return add(random, request, _pool)
    at = random.randrange(len(pairs))
    pairs[at] = (pairs[at][0], random.choice(_VALUES))
    return _with(request, pairs)


def swap_values(random: Random, request: Request, _pool: list[Request]) -> Request:
    """Swap the values of two parameters, or their names."""
    pairs = _pairs(request)
    if len(pairs) < 2:
        return add(random, request, _pool)
    first, second = random.sample(range(len(pairs)), 2)
    pairs[first], pairs[second] = (
        (pairs[first][0], pairs[second][1]),
        (pairs[second][0], pairs[first][1]),
    )
    return _with(request, pairs)


def move_text(random: Random, request: Request, _pool: list[Request]) -> Request:
    """Move a part of a value to the end of another, with the line feed that separates them when signed."""
    pairs = _pairs(request)
    if len(pairs) < 2:
        return add(random, request, _pool)
    first, second = random.sample(range(len(pairs)), 2)
    name, value = pairs[first]
    at = random.randrange(len(value) + 1)
    feed = random.choice(("", "\n", "%0A"))
    pairs[first] = (name, value[:at])
    pairs[second] = (pairs[second][0], pairs[second][1] + feed + value[at:])
    return _with(request, pairs)


def shuffle(random: Random, request: Request, _pool: list[Request]) -> Request:
    """Reorder parameters, which means nothing, and put one name in capitals, which does."""
    pairs = _pairs(request)
    random.shuffle(pairs)
    if pairs and random.random() < 0.5:
        at = random.randrange(len(pairs))
        pairs[at] = (pairs[at][0].upper(), pairs[at][1])
    return _with(request, pairs)


def take_signature(random: Random, request: Request, pool: list[Request]) -> Request:
    """Use the signature of another accepted request, of any kind."""
    other = random.choice(pool)
    if request.headers and other.headers:
        given = other.headers[b"authorization"]
        return replace(request, headers={**request.headers, b"authorization": given})
    if request.headers or other.headers:
        return replace(request, headers=other.headers, query=request.query + b"&" + other.query)
    signature = dict(_pairs(other))["sig"]
    pairs = [(name, signature if name == "sig" else value) for name, value in _pairs(request)]
    return _with(request, pairs)


def sign_otherwise(random: Random, request: Request, _pool: list[Request]) -> Request:
    """Sign correctly, but with the key of no account, or for another account."""
    if request.headers:
        return edit_signature(random, request, _pool)
    parameters = dict(_pairs(request))
    del parameters["sig"]
    if parameters.get("sv", "") == "" or random.random() < 0.5:
        return replace(request, query=query_of(signed(ACCOUNT, OTHER_KEY, parameters)).encode())
    return replace(request, query=query_of(signed("acct2", OTHER_KEY, parameters)).encode())


MUTATIONS: tuple[Mutation, ...] = (
    edit_query,
    edit_path,
    edit_header,
    edit_signature,
    change_method,
    drop,
    add,
    set_value,
    swap_values,
    move_text,
    shuffle,
    take_signature,
    sign_otherwise,
)


def mutated(random: Random, request: Request, pool: list[Request]) -> Request:
    """One mutation, now and then two."""
    changed = random.choice(MUTATIONS)(random, request, pool)
    if random.random() < 0.1:
        # The first mutation may have removed a part that the second needs.
        with suppress(KeyError, ValueError):
            changed = random.choice(MUTATIONS)(random, changed, pool)
    return changed
