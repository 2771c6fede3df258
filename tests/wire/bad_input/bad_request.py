"""A request that no client should send, and the answer it gets, as a value."""

from dataclasses import dataclass

JSON = "application/json"
TABLE = "BadInput"
ENTITY = f"/{TABLE}(PartitionKey='p',RowKey='kept')"
INSERT = b'{"PartitionKey":"p","RowKey":"new","n":1}'
PLAIN_4XX = tuple(range(400, 500))

Header = tuple[str, str]


@dataclass(frozen=True)
class BadRequest:
    name: str
    source: str
    codes: tuple[str, ...] = ("InvalidInput",)
    statuses: tuple[int, ...] = (400,)
    method: str = "POST"
    path: str = f"/{TABLE}"
    body: bytes = b""
    content_type: str = JSON
    content_length: str | None = None
    """The value of Content-Length; None for the true length."""
    more_headers: tuple[Header, ...] = ()
    """Sent after the signed ones, so that one of those can occur twice."""
    version: str = ""
    """x-ms-version; empty: the tests' usual one."""
    torn: bool = False
    """The client stops sending after the body; the server may answer, or just hang up."""


def plain(name: str, source: str, **fields: object) -> BadRequest:
    """Broken as HTTP: no code, any 4xx."""
    return BadRequest(name, source, codes=(), statuses=PLAIN_4XX, **fields)  # type: ignore[arg-type]
