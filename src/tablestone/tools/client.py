"""The one place where the tools speak to a table endpoint: the official SDK signs, sends and authenticates requests.

The SDK's own methods list and create tables. All other requests go through the SDK's pipeline as JSON text, not as
its models: these lose a digit of a time and the type of some values, and cost more CPU than the server (bench/README.md
has the profile). A call makes one attempt; `retrying.Retry` makes more. The SDK is imported when an endpoint is opened,
so that `--help` needs no extra.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import quote, urlencode

from tablestone import __version__, limits
from tablestone.clock import TICKS_PER_SECOND, UNIX_EPOCH_TICKS
from tablestone.extras import needs
from tablestone.model.expiry import ExpiryPolicy
from tablestone.model.keys import PARTITION_KEY, ROW_KEY, EntityKey, encode_key
from tablestone.model.operations import (
    CURSOR_HEADER,
    EXAMINED_HEADER,
    INDEXES_HEADER,
    MORE_HEADER,
    PARTIAL_HEADER,
    TOKEN_HEADER,
    IndexFound,
)
from tablestone.tools.connection import Connection, Scheme
from tablestone.tools.errors import (
    ServiceError,
    TransferFailed,
    TransferRefused,
    Unanswered,
    UnknownHost,
    Unreachable,
    code_of,
    first_line,
    part_error,
    read_json,
    service_error,
)
from tablestone.tools.retrying import BUSY_STATUSES

if TYPE_CHECKING:
    from azure.core.exceptions import AzureError
    from azure.core.rest import HttpResponse
    from azure.data.tables import TableServiceClient

Answer = TypeVar("Answer")
RawEntity = dict[str, Any]
"""An entity as `odata=minimalmetadata` writes it, read as JSON."""

AGENT: Final = "tablestone-tools"
PERSON_SECONDS: Final = 15
"""The longest that a person waits for a whole answer. The service itself ends a page of a query after 5 s."""
PERSON_BYTES_MAX: Final = 32 * 1024 * 1024
"""The largest answer that a person waits for: eight times the largest page of the service."""
# The live service's answers were recorded with these headers (tests/tools/test_recorded.py).
_READING: Final = {"Accept": "application/json;odata=minimalmetadata", "DataServiceVersion": "3.0"}
_COUNTING: Final = {"Accept": "text/plain, application/json", PARTIAL_HEADER: "true"}
_WRITING: Final = {
    "Accept": "application/json",
    "Content-Type": "application/json",
    "DataServiceVersion": "3.0",
}
_INSERTING: Final = {
    "Accept": "application/json;odata=minimalmetadata",
    "Content-Type": "application/json;odata=nometadata",
    "DataServiceVersion": "3.0",
    "Prefer": "return-no-content",
}
_TRANSACTING: Final = {
    "Accept": "application/json",
    "DataServiceVersion": "3.0",
    "MaxDataServiceVersion": "3.0;NetFx",
}
_OF_METHODS: Final = {"POST": _INSERTING, "PUT": _WRITING, "MERGE": _WRITING, "DELETE": _READING}
_PART = re.compile(rb"HTTP/1\.1 (?=\d{3})")
_PART_ETAG = re.compile(rb"\r\nETag: ([^\r\n]+)", re.IGNORECASE)
_NO_RETRIES: Final[Mapping[str, int]] = {"retry_total": 0, "retry_status": 0}
_NEXT: Final = ("NextPartitionKey", "NextRowKey")


BATCH_BYTES_MAX: Final = 3_500_000
"""Bodies in one transaction. The service takes 4 MiB, envelope included."""


class ContinuationToken(NamedTuple):
    """A continuation token: two opaque texts. An empty one is not sent: the service refuses `NextRowKey=`."""

    next_partition_key: str
    next_row_key: str


class Page(NamedTuple):
    """One page of a query: its entities, the token of the next page, and its size in bytes."""

    entities: list[RawEntity]
    next_token: ContinuationToken | None
    size: int
    examined: int | None = None
    """The entities that the server examined, if the query asks and the service says so."""


class OwnAnswer(NamedTuple):
    """The answer to one of Tablestone's own requests: the members of its JSON, and the header `INDEXES_HEADER`."""

    members: dict[str, Any]
    header: str | None


class Walk:
    """Detects that a walk from page to page is back at an earlier page.

    Keeps the last token, and that of the last page whose number is a power of two (Brent's algorithm).
    """

    def __init__(self) -> None:
        self._pages = 0
        self._before: object = None
        self._kept: object = None

    def is_back_at(self, token: object) -> bool:
        """Whether an earlier page had this token of a next page; None means that there is no next page."""
        if token is not None and token in (self._before, self._kept):
            return True
        self._pages += 1
        self._before = token
        if self._pages.bit_count() == 1:
            self._kept = token
        return False


class Operation(NamedTuple):
    """One write: `method` is POST (insert), PUT (replace), MERGE, or DELETE, which has no body."""

    method: str
    key: EntityKey
    body: bytes = b""
    if_match: str | None = None


class Query(NamedTuple):
    """A query. An empty `select` means all properties."""

    table: str
    filter: str | None = None
    select: tuple[str, ...] = ()
    top: int | None = None
    counts_examined: bool = False
    reverse: bool = False
    """The last keys first, which only servers with extensions of queries have."""


class Watch(Protocol):
    """Sees the writes of an endpoint: `hold` before each is sent, which may raise, and `note` after it is done."""

    def hold(self) -> None: ...

    def note(
        self, table: str, operations: Sequence[Operation], etags: Sequence[str | None]
    ) -> None: ...


class TableEndpoint:
    """An account's tables, over the SDK's pipeline. Threads may share one.

    `is_asked_once`: a person waits for the answer, so the SDK retries nothing, and answers have narrower limits.
    `agent` begins the User-Agent; a Tablestone server counts requests of agents `tablestone-…` apart.
    """

    def __init__(
        self, connection: Connection, *, is_asked_once: bool = False, agent: str = AGENT
    ) -> None:
        from azure.data.tables import TableServiceClient  # noqa: PLC0415 - an extra

        from tablestone.tools.transport import AnswerLimits, transport_of  # noqa: PLC0415 - as above

        self.connection = connection
        self.watch: Watch | None = None
        limits = AnswerLimits()
        if is_asked_once:
            limits = AnswerLimits(PERSON_SECONDS, of_whole_answer=True, bytes_max=PERSON_BYTES_MAX)
        settings = transport_of(connection.url, limits)
        if is_asked_once:
            settings["retry_total"] = 0
        try:
            self._service = TableServiceClient(
                connection.url,
                credential=_credential(connection),
                user_agent=f"{agent}/{__version__}",
                **settings,
            )
        except ValueError as error:
            raise TransferRefused(f"{connection.url} cannot be used: {error}") from None
        # Cosmos DB takes a merge in another form, as the SDK sends it there.
        self._merge: tuple[str, dict[str, str]] = (
            ("POST", {"X-HTTP-Method": "MERGE"}) if connection.is_cosmos else ("PATCH", {})
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._service.close()

    def table_names(self) -> Iterator[str]:
        """The names of all tables, in the service's order."""
        with self._errors_of_the_sdk():
            pages = self._service.list_tables().by_page()
            walk = Walk()
            for page in pages:
                for table in page:
                    if not isinstance(table.name, str):
                        raise self._not_a_table_service()
                    yield table.name
                if walk.is_back_at(getattr(pages, "continuation_token", None)):
                    raise TransferFailed(
                        f"{self.connection.url} answered with a continuation token that it gave before, so its list "
                        "of tables has no end."
                    )

    def ask(self, request: Callable[[TableServiceClient], Answer]) -> Answer:
        """Call the SDK's own client, for requests that are not about entities; its errors become ours."""
        with self._errors_of_the_sdk():
            return request(self._service)

    @contextmanager
    def _errors_of_the_sdk(self) -> Iterator[None]:
        """Turn the SDK's errors into ours. An answer of another kind of service makes it fail in several ways."""
        from azure.core.exceptions import AzureError, DeserializationError  # noqa: PLC0415 - an extra

        try:
            yield
        except (DeserializationError, TypeError, AttributeError, KeyError, RecursionError):
            raise self._not_a_table_service() from None
        except (AzureError, ValueError) as error:
            raise self._converted(error) from None

    def _not_a_table_service(self) -> TransferFailed:
        return TransferFailed(f"{self.connection.url} does not answer as a table service does.")

    def create_table(self, name: str) -> bool:
        """Create a table; False if it exists."""
        from azure.core.exceptions import ResourceExistsError  # noqa: PLC0415 - an extra

        retries: Mapping[str, int] = {}
        if self.watch:
            self.watch.hold()
            retries = _NO_RETRIES  # the watch must see each attempt
        with self._errors_of_the_sdk():
            try:
                self._service.create_table(name, **retries)
            except ResourceExistsError as error:
                if code_of(error) == "TableBeingDeleted":
                    raise
                return False
        return True

    def table_exists(self, name: str) -> bool:
        """Whether a table exists. Asks by a query, which any permission to read allows; the SDK retries it."""
        query = Query(name, select=("PartitionKey",), top=1)
        return _is_found(lambda: self.page(query, None, retries={}))

    def service_time(self) -> int | None:
        """The service's time in ticks, to the second; None if its answer has no Date header."""
        response, _ = self._send("GET", "/Tables?%24top=1", is_checked=False)
        date = response.headers.get("Date")
        if date is None:
            return None
        return UNIX_EPOCH_TICKS + int(parsedate_to_datetime(date).timestamp()) * TICKS_PER_SECOND

    def delete_table(self, name: str) -> bool:
        """Delete a table; False if there was none, which the SDK's own method does not say."""
        path, headers = f"/Tables('{_in_path(name)}')", {"Accept": _WRITING["Accept"]}
        return _is_found(lambda: self._send("DELETE", path, headers=headers))

    def page(
        self,
        query: Query,
        token: ContinuationToken | None,
        *,
        retries: Mapping[str, int] = _NO_RETRIES,
    ) -> Page:
        """One page of a query; `TransferFailed` if its continuation token is the one that it was asked with."""
        target = f"/{_in_path(query.table)}(){_parameters(query, token)}"
        headers = {**_READING, EXAMINED_HEADER: "1"} if query.counts_examined else _READING
        response, content = self._send("GET", target, headers=headers, retries=retries)
        if content and not content.lstrip().startswith(b"{"):
            raise self._not_a_table_service()
        entities = read_json(content).get("value")
        if not (isinstance(entities, list) and all(isinstance(each, dict) for each in entities)):
            raise TransferFailed(f"{self.connection.url} answered a query with something else.")
        following = _following(response)
        if following is not None and following == token:
            raise endless(query.table)
        examined = response.headers.get(EXAMINED_HEADER, "")
        return Page(
            entities, following, len(content), int(examined) if examined.isdecimal() else None
        )

    def reads_backwards(self, table: str) -> bool:
        """Whether the server shows the last keys first. Azure refuses to; Azurite ignores the order."""
        if self.connection.is_production:
            return False
        select = (PARTITION_KEY, ROW_KEY)
        try:
            page = self.page(Query(table, select=select, top=2, reverse=True), None)
            keys = [tuple(encode_key(raw[name]) for name in select) for raw in page.entities]
        except (ServiceError, Unreachable, TransferFailed):
            return False
        return len(keys) == 2 and keys[0] > keys[1]

    def count(self, query: Query) -> int | None:
        """The number of entities, as the server counts them; None if it does not: Azure has no such request."""
        if self.connection.is_production:
            return None
        total, token = 0, None
        while True:
            target = f"/{_in_path(query.table)}/$count{_parameters(query, token)}"
            try:
                response, content = self._send("GET", target, headers=_COUNTING, retries={})
                total += int(content)
            except (ServiceError, Unreachable, ValueError):
                return None
            token, asked = _following(response), token
            if token is None:
                return total
            if token == asked:
                raise endless(query.table)

    def get(self, table: str, key: EntityKey, select: Sequence[str] = ()) -> RawEntity | None:
        """One entity, or None."""
        text = f"?$select={quote(','.join(select), safe='')}" if select else ""
        try:
            _, content = self._send("GET", _entity_path(table, key) + text)
        except ServiceError as error:
            if error.status == 404 and error.code in ("ResourceNotFound", ""):
                return None
            raise
        found = read_json(content)
        found.pop("odata.metadata", None)  # the address of the table, which no entity of a page has
        return found

    def changes(
        self, table: str | None, since: str | None, wait_seconds: int
    ) -> tuple[list[bytes], str, bool]:
        """The next lines of the feed of a table or of the account, the cursor after them, and whether more follow."""
        parameters = {"comp": "changes"} if table else {"restype": "service", "comp": "changes"}
        if since is not None:
            parameters["since"] = since
        if wait_seconds:
            parameters["wait"] = str(wait_seconds)
        text = urlencode(parameters, quote_via=quote, safe="")
        response, content = self._send("GET", f"/{_in_path(table or '')}?{text}")
        cursor = response.headers.get(CURSOR_HEADER)
        if cursor is None:  # a service that ignores `comp`
            raise ServiceError(response.status_code, "", "")
        return content.splitlines(), cursor, MORE_HEADER in response.headers

    def indexes(self, table: str) -> list[IndexFound] | None:
        """The indexes of a table; None if unknown: Azure has none, and the caller may lack the permission."""
        if self.connection.is_production:
            return None
        try:
            # A service that ignores `comp` answers with entities: one at most.
            _, content = self._send("GET", f"/{_in_path(table)}?comp=indexes&%24top=1")
            found = read_json(content).get("indexes")
            return found and [
                IndexFound(each["property"], each["withinPartition"], each["state"])
                for each in found
            ]
        except ServiceError as error:
            return [] if error.status == 400 else None
        except (Unreachable, TypeError, KeyError):
            return None  # the caller's next request says what is wrong

    def own_form(
        self,
        method: str,
        table: str,
        comp: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        **parameters: str,
    ) -> OwnAnswer:
        """Send a request for indexes or expiry that needs `INDEXES_HEADER` (docs/protocol/indexes.md)."""
        if self.connection.is_production:
            raise TransferRefused(f"{self.connection.url} has neither indexes nor expiry.")
        text = urlencode({"comp": comp, **parameters}, quote_via=quote, safe="")
        headers = {**(_READING if body is None else _WRITING), INDEXES_HEADER: "1"}
        headers |= {} if token is None else {TOKEN_HEADER: token}
        content = None if body is None else json.dumps(body).encode("ascii")
        response, answer = self._send(method, f"/{_in_path(table)}?{text}", content, headers)
        members = read_json(answer) if answer else {}
        if "value" in members:  # a service that ignores `comp` answers with entities
            raise ServiceError(400, "InvalidQueryParameterValue", "")
        return OwnAnswer(members, response.headers.get(INDEXES_HEADER))

    def expiry(self, table: str) -> ExpiryPolicy | None:
        """The policy by which a table's entities expire; a Tablestone server shows it to the account's key only."""
        if not self._may_have_expiry:
            return None
        try:
            path = f"/{_in_path(table)}?comp=expiry&%24top=1"  # one entity at most, as above
            _, content = self._send("GET", path, retries={})
            return ExpiryPolicy.from_members(read_json(content))
        except ServiceError as error:
            if error.status in BUSY_STATUSES:
                raise
        except (TransferFailed, ValueError):
            pass
        return None  # no policy, or another kind of service

    def offer_expiry(self, table: str, policy: ExpiryPolicy) -> None:
        """Give a table its policy; a Tablestone server accepts it if the table is empty."""
        if self._may_have_expiry:
            body = json.dumps(policy.members()).encode("ascii")
            try:
                self._send("PUT", f"/{_in_path(table)}?comp=expiry", body, _WRITING, retries={})
            except ServiceError as error:
                if error.status in BUSY_STATUSES:
                    raise

    @property
    def _may_have_expiry(self) -> bool:
        """Whether to ask about expiry: only with the account's key, and never in Azure's clouds."""
        is_with_key = self.connection.scheme is Scheme.ACCOUNT_KEY
        return is_with_key and not self.connection.is_production

    def write(self, table: str, operation: Operation) -> str | None:
        """Send one write outside a transaction. Returns the new ETag."""
        method, headers = self._form_of(operation.method)
        path = f"/{table}" if operation.method == "POST" else _entity_path(table, operation.key)
        if operation.if_match is not None:
            headers["If-Match"] = operation.if_match
        response, _ = self._send(method, path, operation.body, headers)
        etag: str | None = response.headers.get("ETag")
        if self.watch:
            self.watch.note(table, [operation], [etag])
        return etag

    def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """Send one entity group transaction. Returns the new ETags; raises the error of the operation that failed.

        One that is too long for a batch goes alone, as an entity of more than 1 MiB may have to.
        """
        if len(operations) == 1 and len(operations[0].body) > BATCH_BYTES_MAX:
            return [self.write(table, operations[0])]
        mark = secrets.token_hex(8)
        body = self._batch_body(table, operations, mark)
        headers = {**_TRANSACTING, "Content-Type": f"multipart/mixed; boundary=batch_{mark}"}
        _, content = self._send("POST", "/$batch", body, headers)
        parts = _PART.split(content)[1:]
        for part in parts:
            if (status := int(part[:3])) >= 300:
                raise part_error(status, content)
        if len(parts) != len(operations):
            raise Unreachable(f"{len(operations)} writes were answered by {len(parts)} results")
        found = [_PART_ETAG.search(part) for part in parts]
        etags = [each[1].decode("latin-1") if each else None for each in found]
        if self.watch:
            self.watch.note(table, operations, etags)
        return etags

    def _batch_body(self, table: str, operations: Sequence[Operation], mark: str) -> bytes:
        start = (
            f"--changeset_{mark}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n"
            "Content-ID: "
        )
        beginnings = {
            method: self._beginning(method) for method in {each.method for each in operations}
        }
        collection = f"{self.connection.url}/{table}"
        parts = [
            f"--batch_{mark}\r\nContent-Type: multipart/mixed; boundary=changeset_{mark}\r\n\r\n".encode()
        ]
        for number, (method, key, body, if_match) in enumerate(operations):
            verb, headers = beginnings[method]
            url = collection if method == "POST" else self.connection.url + _entity_path(table, key)
            head = f"{start}{number}\r\n\r\n{verb} {url} HTTP/1.1\r\n{headers}"
            if if_match:
                head += f"If-Match: {if_match}\r\n"
            if method != "DELETE":
                head += f"Content-Length: {len(body)}\r\n"
            parts += (f"{head}\r\n".encode(), body, b"\r\n")
        parts.append(f"--changeset_{mark}--\r\n\r\n--batch_{mark}--\r\n".encode())
        return b"".join(parts)

    def _form_of(self, method: str) -> tuple[str, dict[str, str]]:
        """The HTTP method and headers of a write."""
        verb, overriding = self._merge if method == "MERGE" else (method, {})
        return verb, {**_OF_METHODS[method], **overriding}

    def _beginning(self, method: str) -> tuple[str, str]:
        """The HTTP method, and the headers as text, of an operation inside a transaction."""
        verb, headers = self._form_of(method)
        headers = {"x-ms-version": self._service.api_version, **headers}
        return verb, "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    def _send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        retries: Mapping[str, int] = _NO_RETRIES,
        *,
        is_checked: bool = True,
    ) -> tuple[HttpResponse, bytes]:
        """The answer of a request, and its body. Raises `ServiceError` for a status of 300 or more if `is_checked`."""
        from azure.core.exceptions import AzureError  # noqa: PLC0415 - an extra
        from azure.core.rest import HttpRequest  # noqa: PLC0415 - as above

        if self.watch and method != "GET":
            self.watch.hold()
        request = HttpRequest(
            method,
            self.connection.url + target,
            headers={**(headers or _READING), "x-ms-version": self._service.api_version},
            content=body or None,
        )
        try:
            # The SDK's client sends every request with this method. Streamed, so that no policy decodes the JSON.
            response: HttpResponse = self._service._client.send_request(  # noqa: SLF001 - there is no public one
                request, stream=True, **retries
            )
            content = response.read()
        except AzureError as error:
            raise self._converted(error) from None
        except ValueError:  # before anything was sent
            raise TransferRefused("The ETag or token has characters that no ETag has.") from None
        if is_checked and not 200 <= response.status_code < 300:
            raise service_error(response, content)
        return response, content

    def _converted(self, error: AzureError | ValueError) -> Exception:
        """The SDK's error as one of ours."""
        from azure.core.exceptions import (  # noqa: PLC0415 - an extra
            ClientAuthenticationError,
            HttpResponseError,
            ServiceResponseError,
        )

        if isinstance(error, HttpResponseError) and error.status_code is not None:
            return ServiceError(error.status_code, code_of(error), first_line(error))
        if isinstance(error, ValueError):
            return TransferRefused(" ".join(str(error).split()))
        if isinstance(error, ClientAuthenticationError):
            return TransferFailed(f"The login to {self.connection.url} failed: {first_line(error)}")
        if isinstance(error, (ServiceResponseError, HttpResponseError)):
            return Unanswered(first_line(error))
        cause = getattr(error, "inner_exception", None)
        is_unknown = type(cause).__name__ == "NameResolutionError"  # of urllib3, which loads slowly
        return (UnknownHost if is_unknown else Unreachable)(first_line(error))


def _is_found(request: Callable[[], object]) -> bool:
    """Call a request; False if it answers 404."""
    try:
        request()
    except ServiceError as error:
        if error.status == 404:
            return False
        raise
    return True


def endless(table: str) -> TransferFailed:
    """The failure of a query whose pages lead back to an earlier page."""
    return TransferFailed(
        f"{table}: the service answered with a continuation token that it gave before, so its pages have no end."
    )


def _credential(connection: Connection) -> Any:
    if connection.scheme is Scheme.ENTRA:
        try:
            from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - an extra of its own, and slow to load
        except ImportError:
            raise TransferRefused(
                needs("A login to Entra ID without --sas", "azure-identity", "tools,entra")
            ) from None
        return DefaultAzureCredential()
    from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential  # noqa: PLC0415 - an extra

    assert connection.secret is not None
    if connection.scheme is Scheme.ACCOUNT_KEY:
        return AzureNamedKeyCredential(connection.account, connection.secret)
    return AzureSasCredential(connection.secret)


def _entity_path(table: str, key: EntityKey) -> str:
    return f"/{_in_path(table)}(PartitionKey='{_in_path(key.partition_key)}',RowKey='{_in_path(key.row_key)}')"


def _parameters(query: Query, token: ContinuationToken | None) -> str:
    """The query of a URL, with its question mark; empty without parameters."""
    parameters = {}
    if query.filter:
        parameters["$filter"] = query.filter
    if query.select:
        parameters["$select"] = ",".join(query.select)
    if query.top is not None:
        parameters["$top"] = str(min(query.top, limits.PAGE_ENTITIES_MAX))
    if query.reverse:
        parameters["$orderby"] = "PartitionKey desc,RowKey desc"
    if token is not None:
        parameters |= {name: text for name, text in zip(_NEXT, token, strict=True) if text}
    text = urlencode(parameters, quote_via=quote, safe="")
    return f"?{text}" if text else ""


def _following(response: HttpResponse) -> ContinuationToken | None:
    texts = [response.headers.get(f"x-ms-continuation-{name}", "") for name in _NEXT]
    return ContinuationToken(*texts) if any(texts) else None


def _in_path(text: str) -> str:
    if text.isalnum() and text.isascii():
        return text
    return quote(text.replace("'", "''"), safe="")
