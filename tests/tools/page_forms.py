"""Pages in every form that the service may give them: any number of rows, empty, and any kind of token.

Stands between a client and a real service. It asks that service for as many rows as the form allows, from where the
token leads, and gives the answer an opaque token of its own. After the last row comes one more page, which is empty. As
on the service, a token that is sent back blank, or that was never issued, is 400 `InvalidInput`.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

import orjson

GIVEN, MISSING, BLANK = "given", "missing", "blank"
"""How the header with the row key may look."""

OF_ENTITIES: Final = ("NextPartitionKey", "NextRowKey")
OF_TABLES: Final = ("NextTableName",)
_HEADER: Final = "x-ms-continuation-"

# Recorded in AzureStorageExplorer 5434, of `CabTable()?NextPartitionKey=1!12!Q2FiUXVlcnk-&NextRowKey=`.
INVALID_INPUT: Final = orjson.dumps(
    {
        "odata.error": {
            "code": "InvalidInput",
            "message": {
                "lang": "en-US",
                "value": "One of the request inputs is not valid.\n"
                "RequestId:3a117790-e002-007b-4768-1f5538000000\nTime:2022-02-11T16:56:50.0462714Z",
            },
        }
    }
)


class Form(NamedTuple):
    """The form of a page: how many rows at most, the header with the row key, and where it leads.

    `back` is 0 for the next page, 1 for the page itself, 2 for the one before it. `length` makes the text of the
    partition key or the table name in the token longer than it need be.
    """

    rows: int = 1000
    row_key: str = GIVEN
    back: int = 0
    length: int = 0


Token = tuple[str, ...]


class _Place(NamedTuple):
    """Where a page begins, as parameters of the real service, None after the last row; the tokens that led there."""

    real: Mapping[str, str] | None
    trail: tuple[Token, ...] = ()


class Asked(NamedTuple):
    """A request for a page: the path to send on, the names of its continuation parameters, and where it begins."""

    path: str
    names: tuple[str, ...]
    place: _Place


class InvalidInput(Exception):
    """The request's continuation is blank, or was never issued."""


def is_page(method: str, target: str) -> bool:
    """Whether a request asks for a page of entities or tables."""
    return method == "GET" and target.partition("?")[0].endswith(("()", "/Tables"))


class PageForms:
    """Gives the pages of a walk these forms, one after the other and then from the first again.

    Without forms, all pages are as the real service returns them.
    """

    def __init__(self, forms: Sequence[Form]) -> None:
        self._forms = forms
        self._places: dict[Token, _Place] = {}

    def asked(self, method: str, target: str) -> Asked | None:
        """The request for a page, None if it asks for none; raises `InvalidInput`."""
        if not self._forms or not is_page(method, target):
            return None
        path, _, query = target.partition("?")
        names = OF_TABLES if path.endswith("/Tables") else OF_ENTITIES
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        given = {name: parameters.pop(name) for name in names if name in parameters}
        if "" in given.values():
            raise InvalidInput
        place = _Place({})
        if given:
            try:
                place = self._places[tuple(given.get(name, "") for name in names)]
            except KeyError:
                raise InvalidInput from None
        rows = self._form_of(place).rows or 1
        parameters["$top"] = str(min(int(parameters.get("$top", rows)), rows))
        return Asked(f"{path}?{urlencode(parameters | dict(place.real or {}))}", names, place)

    def shaped(
        self, asked: Asked, headers: Sequence[tuple[str, str]], content: bytes
    ) -> tuple[list[tuple[str, str]], bytes]:
        """The headers and the content of the page, made from the real service's answer."""
        real, trail = asked.place
        form = self._form_of(asked.place)
        others = [pair for pair in headers if not pair[0].lower().startswith(_HEADER)]
        if real is None or not form.rows:
            content = orjson.dumps(orjson.loads(content) | {"value": []})
        if real is None:
            return others, content
        if 0 < form.back <= len(trail):
            token = trail[-form.back]
        else:
            answered = {name.lower(): text for name, text in headers}
            following = {
                name: answered[(_HEADER + name).lower()]
                for name in asked.names
                if (_HEADER + name).lower() in answered
            }
            token = self._token_to((following or None) if form.rows else real, asked, form)
        look = dict(zip(asked.names, token, strict=True))
        if form.row_key == MISSING:
            look = {name: text for name, text in look.items() if text}
        return [*others, *((_HEADER + name, text) for name, text in look.items())], content

    def _form_of(self, place: _Place) -> Form:
        return self._forms[len(place.trail) % len(self._forms)]

    def _token_to(self, real: Mapping[str, str] | None, asked: Asked, form: Form) -> Token:
        trail = asked.place.trail
        place = base64.b64encode(repr((len(trail), asked.path, real)).encode()).decode("ascii")
        first = _text(place.rstrip("=").ljust(form.length - len("1!00000!"), "A"))
        second = "" if form.row_key in (MISSING, BLANK) else _text("cm93")
        token = (first, second)[: len(asked.names)]
        self._places[token] = _Place(real, (*trail, token))
        return token


def _text(encoded: str) -> str:
    return f"1!{len(encoded)}!{encoded}"
