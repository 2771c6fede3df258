"""A grammar of requests: each request it draws is right in most of its parts, so that it gets deep into the server.

A request is bytes in the form of `drafts`. There are few tables and keys, so that requests meet each other's data.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final
from urllib.parse import quote

from stress.fuzz.words import (
    ACCEPTS,
    ETAGS,
    KEYS,
    LITERALS,
    NAMES,
    ODD_KEYS,
    ODD_NAMES,
    ODD_TABLES,
    OPERATORS,
    TABLES,
    TYPES,
    VERSIONS,
)


def _one(random: Random, usual: Sequence[Any], odd: Sequence[Any]) -> Any:
    return random.choice(usual if random.random() < 0.93 else odd)


def _text(random: Random) -> str:
    return "".join(
        chr(random.choice((random.randrange(128), random.randrange(0xD800)))) for _ in range(8)
    )


def _table(random: Random) -> str:
    return str(_one(random, TABLES, ODD_TABLES))


def _key(random: Random) -> str:
    return str(_one(random, KEYS, (*ODD_KEYS, _text(random))))


def _quoted(random: Random, text: str) -> str:
    doubled = text.replace("'", "''") if random.random() < 0.97 else text
    return quote(doubled, safe=random.choice(("", "'", "-_.~'!*()", "'()=,&;")))


def _entity_path(random: Random) -> str:
    names = ("PartitionKey", "RowKey") if random.random() < 0.97 else ("RowKey", "PartitionKey")
    first, second = (f"{name}='{_quoted(random, _key(random))}'" for name in names)
    path = f"{_table(random)}({first},{second})"
    return path.replace("(", "%28").replace("'", "%27") if random.random() < 0.1 else path


def _filter(random: Random, depth: int = 3) -> str:
    kind = random.random()
    if depth and kind < 0.35:
        joint = random.choice((" and ", " or "))
        return joint.join(_filter(random, depth - 1) for _ in range(random.randint(2, 4)))
    if depth and kind < 0.45:
        return f"not ({_filter(random, depth - 1)})"
    if depth and kind < 0.55:
        return f"({_filter(random, depth - 1)})"
    if kind < 0.6:
        return str(_one(random, NAMES, ODD_NAMES))
    if kind < 0.8:
        name = random.choice(("PartitionKey", "RowKey"))
        key = _key(random).replace("'", "''")
        return f"{name} {_one(random, OPERATORS[:6], OPERATORS)} '{key}'"
    sides = [str(_one(random, NAMES, ODD_NAMES)), random.choice(LITERALS)]
    if random.random() < 0.2:
        random.shuffle(sides)
    return f"{sides[0]} {_one(random, OPERATORS[:6], OPERATORS)} {sides[1]}"


def _members(random: Random) -> dict[str, Any]:
    members: dict[str, Any] = {"PartitionKey": _key(random), "RowKey": _key(random)}
    for _ in range(int(random.expovariate(0.4))):
        name = str(_one(random, NAMES, (*ODD_NAMES, _text(random))))
        kind = random.choice(list(TYPES))
        if random.random() < 0.6:
            members[f"{name}@odata.type"] = kind
        members[name] = random.choice(TYPES[kind]) if random.random() < 0.9 else None
    if random.random() < 0.2:
        del members[random.choice(list(members))]
    return members


def _json(random: Random) -> bytes:
    if random.random() < 0.05:
        members = ",".join(
            f'"m{number}":{number}' for number in range(random.choice((250, 253, 300)))
        )
        return f'{{"PartitionKey":"p","RowKey":"r",{members}}}'.encode()
    return json.dumps(_members(random), ensure_ascii=random.random() < 0.5).encode(
        "utf-8", "replace"
    )


def _atom(random: Random) -> bytes:
    lines = []
    for name, value in _members(random).items():
        if name.endswith("@odata.type"):
            continue
        kind = random.choice(list(TYPES))
        typed = f' m:type="{kind}"' if random.random() < 0.5 else ""
        empty = ' m:null="true"' if value is None else ""
        escaped = str(value).replace("&", "&amp;").replace("<", "&lt;").replace("\0", "&#0;")
        lines.append(f"<d:{name}{typed}{empty}>{escaped}</d:{name}>")
    return (
        '<?xml version="1.0"?><entry xmlns="http://www.w3.org/2005/Atom" '
        'xmlns:d="http://schemas.microsoft.com/ado/2007/08/dataservices" '
        'xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"><content type="application/xml">'
        f"<m:properties>{''.join(lines)}</m:properties></content></entry>"
    ).encode("utf-8", "replace")


def _query(random: Random, *, of_entities: bool) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    if random.random() < 0.6:
        named = f"TableName {random.choice(OPERATORS)} '{_table(random)}'"
        pairs.append(("$filter", _filter(random) if of_entities else named))
    if random.random() < 0.3:
        pairs.append(("$top", random.choice(("0", "1", "5", "1000", "1001", "-1", "x", "٣"))))
    if random.random() < 0.3:
        names = [str(_one(random, NAMES, ODD_NAMES)) for _ in range(random.randint(1, 5))]
        pairs.append(("$select", random.choice((",", ", ", ",,")).join(names)))
    if random.random() < 0.2:
        token = random.choice(("1!4!cA--", "1!8!cGFydA--", "p", "1!3!x", "", "1!4!!!!!"))
        parts = ("NextPartitionKey", "NextRowKey") if of_entities else ("NextTableName",)
        pairs += [(name, token) for name in parts if random.random() < 0.9]
    if random.random() < 0.1:
        pairs.append(("$format", random.choice(ACCEPTS)))
    if random.random() < 0.05:
        pairs.append(
            (random.choice(("$orderby", "$skip", "timeout", "comp", "restype", "$top")), "1")
        )
    return pairs


def _written(random: Random, pairs: Sequence[tuple[str, str]]) -> str:
    safe = random.choice(("", "'", "$'()"))
    joined = "&".join(f"{quote(name, safe='$')}={quote(value, safe=safe)}" for name, value in pairs)
    return f"?{joined}" if joined else ""


def _draft(
    method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes = b""
) -> bytes:
    lines = [f"{method} {target}", *(f"{name}: {value}" for name, value in headers if value != "-")]
    return "\n".join(lines).encode("utf-8", "replace") + b"\n\n" + body


def _general_headers(random: Random) -> list[tuple[str, str]]:
    headers = [("x-ms-version", str(_one(random, VERSIONS[:2], VERSIONS)))]
    headers.append(("accept", _one(random, ACCEPTS[:2], ACCEPTS)))
    for name, values, share in (
        ("prefer", ("return-content", "return-no-content", "x"), 0.2),
        ("maxdataserviceversion", ("3.0;NetFx", "1.0", "x", "0" * 50), 0.1),
        ("origin", ("http://a.example", "null", "x" * 500), 0.1),
        ("x-ms-client-request-id", ("1", "ü", "x" * 1024, "x" * 1025), 0.1),
        ("content-md5", ("x",), 0.02),
    ):
        if random.random() < share:
            headers.append((name, random.choice(values)))
    return headers


def _write(random: Random) -> bytes:
    atom = random.random() < 0.15
    body = _atom(random) if atom else _json(random)
    content_type = (
        "application/atom+xml" if atom else _one(random, ("application/json",), ("text/plain", "-"))
    )
    headers = [*_general_headers(random), ("content-type", content_type)]
    if atom:
        headers[0] = ("x-ms-version", random.choice(("2013-08-15", "2012-02-12")))
    if random.random() < 0.4:
        return _draft("POST", f"/{_table(random)}", headers, body)
    if random.random() < 0.6:
        headers.append(
            (_one(random, ("if-match",), ("if-none-match",)), _one(random, ("*",), ETAGS))
        )
    method = random.choice(("PUT", "MERGE", "PATCH", "DELETE", "POST"))
    if method == "POST":
        headers.append(("x-http-method", random.choice(("MERGE", "DELETE", "PUT", "x"))))
    return _draft(method, f"/{_entity_path(random)}", headers, b"" if method == "DELETE" else body)


def _read(random: Random) -> bytes:
    kind = random.random()
    if kind < 0.3:
        target = f"/{_entity_path(random)}{_written(random, _query(random, of_entities=True)[:1])}"
    elif kind < 0.85:
        parentheses = random.choice(("()", "()", "", "(x)"))
        target = (
            f"/{_table(random)}{parentheses}{_written(random, _query(random, of_entities=True))}"
        )
    else:
        target = f"/Tables{_written(random, _query(random, of_entities=False))}"
    return _draft(
        _one(random, ("GET",), ("HEAD", "OPTIONS", "BREW")), target, _general_headers(random)
    )


def _of_table(random: Random) -> bytes:
    headers = [*_general_headers(random), ("content-type", "application/json")]
    if random.random() < 0.7:
        return _draft(
            "POST", "/Tables", headers, json.dumps({"TableName": _table(random)}).encode()
        )
    return _draft(
        random.choice(("DELETE", "GET")),
        f"/Tables('{_quoted(random, _table(random))}')",
        headers[:-1],
    )


def _of_service(random: Random) -> bytes:
    """Policies, service properties, statistics, user delegation keys (auth 7, 8)."""
    policy = (
        f"<SignedIdentifiers><SignedIdentifier><Id>{random.choice(('p1', 'p2', 'x' * 65, ''))}</Id><AccessPolicy>"
        f"<Start>{random.choice(('2017-01-05', 'x', ''))}</Start><Expiry>2034-05-06T00:00:00Z</Expiry>"
        f"<Permission>{random.choice(('r', 'raud', 'rr', 'z'))}</Permission></AccessPolicy></SignedIdentifier>"
        "</SignedIdentifiers>"
    )
    cors = (
        f"<StorageServiceProperties><Cors><CorsRule><AllowedOrigins>{random.choice(('*', 'http://a.example', ','))}"
        f"</AllowedOrigins><AllowedMethods>GET,PUT</AllowedMethods><MaxAgeInSeconds>{random.choice(('5', '-1', 'x'))}"
        "</MaxAgeInSeconds><ExposedHeaders>x-ms-*</ExposedHeaders><AllowedHeaders>*</AllowedHeaders></CorsRule></Cors>"
        "</StorageServiceProperties>"
    )
    key = "<KeyInfo><Start></Start><Expiry>2030-01-01T00:00:00Z</Expiry></KeyInfo>"
    target, content = random.choice(
        (
            (f"/{_table(random)}?comp=acl", policy),
            ("/?restype=service&comp=properties", cors),
            ("/?restype=service&comp=stats", ""),
            ("/?restype=service&comp=userdelegationkey", key),
        )
    )
    method = random.choice(("GET", "PUT", "HEAD", "POST"))
    body = content.encode() if method in ("PUT", "POST") else b""
    return _draft(method, target, _general_headers(random), body)


def _part(random: Random, boundary: str, end: str) -> bytes:
    """One operation of a change set: a write, with its headers below the request line."""
    draw = _write if random.random() < 0.95 else _read
    head, _, body = draw(random).partition(b"\n\n")
    first, *headers = head.decode().split("\n")
    method, _, target = first.partition(" ")
    base = random.choice(
        ("http://127.0.0.1:10002/devstoreaccount1", "/devstoreaccount1", "https://x/")
    )
    lines = [
        f"--{boundary}",
        "Content-Type: application/http",
        "Content-Transfer-Encoding: binary",
        "",
    ]
    lines += [f"{method} {base}{target} {_one(random, ('HTTP/1.1',), ('HTTP/2', ''))}", *headers]
    if random.random() < 0.3:
        lines.append(f"Content-Length: {_one(random, (len(body),), (0, -1, 10**6, 'x'))}")
    if random.random() < 0.3:
        lines.append("Content-ID: " + random.choice(("1", "x", "1\t2")))
    return end.join([*lines, "", ""]).encode() + body + end.encode()


def _batch(random: Random) -> bytes:
    end = random.choice(("\r\n", "\r\n", "\n"))
    outer, inner = _one(random, (("b", "c"),), (("b", "b"), ("b", "bb"), ("-", "--"), ("b c", "c")))
    if random.random() < 0.15:
        content = _part(random, outer, end)
    else:
        count = _one(random, (1, 2, 3), (0, 99, 100, 101))
        parts = b"".join(_part(random, inner, end) for _ in range(count))
        head = end.join((f"--{outer}", f"Content-Type: multipart/mixed; boundary={inner}", "", ""))
        content = head.encode() + parts + f"--{inner}--{end}".encode()
    content += f"--{outer}{_one(random, ('--',), ('', '-'))}{end}".encode()
    headers = [*_general_headers(random), ("content-type", f'multipart/mixed; boundary="{outer}"')]
    return _draft("POST", "/$batch", headers, content)


def _signing(random: Random) -> str:
    sas = "?sv=2019-02-02&se=2034-05-06T00:00:00Z&"
    return str(
        _one(
            random,
            (
                "key",
                "key",
                "key",
                "lite",
                f"{sas}ss=t&srt=sco&sp=rwdlacup",
                f"{sas}tn=Fuzz&sp=raud",
            ),
            (
                *(
                    "none",
                    "bad",
                    f"{sas}tn=Fuzz&si=p1",
                    f"{sas}tn=Fuzz&sp=raud&spk=p&srk=r&epk=p&erk=s",
                ),
                *(
                    f"{sas}ss=t&srt=o&sp=r&sip=10.0.0.1",
                    f"{sas}tn=Fuzz&sp=r&skoid=x",
                    "?sv=x&tn=Fuzz",
                ),
            ),
        )
    )


_KINDS: Final[tuple[tuple[Callable[[Random], bytes], int], ...]] = (
    (_write, 35),
    (_read, 30),
    (_batch, 18),
    (_of_table, 9),
    (_of_service, 8),
)


def drawn(random: Random) -> bytes:
    draw = random.choices([draw for draw, _ in _KINDS], [weight for _, weight in _KINDS])[0]
    first, end, rest = draw(random).partition(b"\n")
    return first + end + f"sign: {_signing(random)}\n".encode() + rest
