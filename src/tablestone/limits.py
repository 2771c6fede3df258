"""The limits of the service and the limits on what a client may send, each with its source.

"Ours" is a limit that Azure does not document. "wire N" and "auth N" are sections of docs/protocol/wire.md and auth.md;
"data model" is Microsoft's "Understanding the Table service data model". Numbers only: the code that checks a limit
decides what happens beyond it. A constant that only tunes one module is in that module.
"""

from typing import Final, NamedTuple

# Names and keys.
TABLE_NAME_LENGTH_MIN: Final = 3
"""Characters (wire 1.4)."""
TABLE_NAME_LENGTH_MAX: Final = 63
"""Characters (wire 1.4)."""
KEY_LENGTH_MAX: Final = 1024
"""UTF-16 units in the PartitionKey or RowKey of a write (wire 9, note on key length; wire 14 row 3)."""
PROPERTY_NAME_LENGTH_MAX: Final = 255
"""UTF-16 units (data model; wire 9)."""

# Entities.
ENTITY_PROPERTIES_MAX: Final = 252
"""Properties besides PartitionKey, RowKey and Timestamp (data model; wire 9)."""
ENTITY_SIZE_BYTES_MAX: Final = 1024 * 1024
"""Bytes of an entity by the formula of wire 9, which does not depend on the payload."""
STRING_LENGTH_MAX: Final = 32 * 1024
"""UTF-16 units in an Edm.String (wire 9)."""
BINARY_LENGTH_MAX: Final = 64 * 1024
"""Bytes in an Edm.Binary (wire 9)."""
GEOGRAPHY_POINT_SIZE_BYTES: Final = 24
"""Bytes of an Edm.GeographyPoint, our extension, in the entity's size: three doubles."""

# Requests.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a body; a longer one is refused with 413 RequestBodyTooLarge (wire 9)."""
BODY_BYTES_DISCARDED_MAX: Final = 64 * 1024 * 1024
"""What is read and discarded of a body that is too long, so that the client receives the error: 16 bodies. Ours."""
HEADERS_BYTES_MAX: Final = 64 * 1024
"""Bytes of all headers together; the answer to more is a plain 431. Ours, similar to the limits of HTTP servers."""
HOST_LENGTH_MAX: Final = 261
"""Bytes of the Host header: the longest name in DNS, with a port. Ours."""
URL_LENGTH_MAX: Final = 64 * 1024 - 1
"""Bytes of the request target. The HTTP parser (httptools) counts in 16 bits and fails for a longer one, which is
answered 400 in plain text. Filters can have tens of KiB (wire 6.6)."""
XML_NODES_MAX: Final = 4096
"""Elements and attributes of an XML document; an entity of 252 properties has about 800. Ours."""
XML_TAG_BYTES_MAX: Final = 64 * 1024
"""About the bytes of a tag in XML; the link of an entity in Atom, with both keys encoded, has up to 19 KiB. Ours."""
XML_NAMESPACE_LENGTH_MAX: Final = 256
"""Characters of a namespace's URI in an XML document; those of Atom have up to 65. Ours."""
XML_DEPTH_MAX: Final = 16
"""The depth of elements in an XML document; CORS rules and Atom entries need 4. Ours."""
REQUEST_HEAD_BYTES_MAX: Final = 256 * 1024
"""Bytes that one request may send before its head is complete, or beside its body (trailer fields, chunk extensions):
twice the longest target and headers. The answer to more is 431, and the connection ends. Ours."""
REQUEST_HEAD_SECONDS_MAX: Final = 30
"""From a new connection to the end of its first headers; also for later ones in pieces. As `BODY_READ_SECONDS_MAX`."""
CLIENT_REQUEST_ID_LENGTH_MAX: Final = 1024
"""Bytes of an x-ms-client-request-id that the answer repeats (wire 2.2)."""
CLOCK_SKEW_SECONDS_MAX: Final = 15 * 60
"""The difference allowed between the signed date and the server's clock, in both directions (auth 1.4)."""
TOKEN_LENGTH_MAX: Final = 16 * 1024
"""Bytes of a bearer token; one of Entra ID with 200 groups has about 12 KiB. Ours."""
TOKEN_LEEWAY_SECONDS: Final = 60
"""The difference allowed between the clocks of a token's issuer and of the server; with NTP it is less. Ours."""
USER_DELEGATION_KEY_SECONDS_MAX: Final = 7 * 24 * 60 * 60
"""The longest time from now to the expiry of a user delegation key (auth 3.11; Azure's documentation)."""
ALLOWED_RANGES_MAX: Final = 64
"""Ranges of addresses that an account allows. A longer list belongs into a firewall. Ours; Azure's is 400."""
INDEXES_MAX: Final = 16
"""Indexes of a table. Each can cost every write of an entity one entry more. Ours."""
EXPIRY_AGE_SECONDS_MAX: Final = 7_800 * 365 * 24 * 60 * 60
"""The longest time from an entity's Timestamp to its expiry: until the year 2200, the sum is still a DateTime. Ours."""
PIPELINED_REQUESTS_MAX: Final = 100
"""Requests that may arrive on a connection before the first is answered. No SDK sends a second one. Ours."""
CHANGE_WAIT_SECONDS_MAX: Final = 30
"""How long a request may ask to wait for changes: many proxies end a silent connection after 60 s. Ours."""
ANSWER_READ_SECONDS_MAX: Final = 30
"""A client that reads less than `ANSWER_READ_BYTES_MIN` of its answer in this time loses its connection."""
ANSWER_READ_BYTES_MIN: Final = 32 * 1024
"""1 KiB a second: slower than any network on which people use an SDK. Ours."""
BODY_READ_SECONDS_MAX: Final = 30
"""How long the server waits for the next piece of a body; the service's time for a whole request is 30 s."""
STORAGE_SECONDS_MAX: Final = 16
"""A request begins no call of storage after this time. The last call may take 14 s more where a cluster does not answer
(`engines/cassandra/commit.py`), so the client has its answer within the service's own limit of 30 s."""
BODY_DISCARD_SECONDS_MAX: Final = 2
"""How long the server reads and discards the body of a refused request, which takes a connection meanwhile. Ours."""


class EntityLimits(NamedTuple):
    """How large an entity may be that a client writes, and the request that brings it (`--entity-size`)."""

    entity_bytes: int
    string_length: int
    binary_bytes: int
    body_bytes: int
    """Of a request alone; a batch has `BODY_BYTES_MAX`."""
    transaction_bytes: int | None = None
    """Of all entities that a transaction writes, as they are stored; None: as many as its operations make."""


OF_SERVICE: Final = EntityLimits(
    ENTITY_SIZE_BYTES_MAX, STRING_LENGTH_MAX, BINARY_LENGTH_MAX, BODY_BYTES_MAX
)
OF_2_MIB: Final = EntityLimits(
    2 * 1024 * 1024, 1024 * 1024, 2 * 1024 * 1024, 14 * 1024 * 1024, 16 * 1024 * 1024
)
"""An entity of 2 MiB, as Cosmos DB for Table has it, of one value or of many. Such a text has 6 MiB in JSON if each
character is written as `\\uXXXX`, and 8 MiB in XML as `&#xXXXX;`. Merges alone could make a transaction of 600 MiB."""
ENTITY_SIZES: Final = {"1MiB": OF_SERVICE, "2MiB": OF_2_MIB}
"""The values of `--entity-size`."""

# Queries.
PAGE_ENTITIES_MAX: Final = 1000
"""Entities in one page, and the largest `$top` (wire 6.6, 6.7)."""
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes at which a page ends (wire 6.6; wire 14 row 17)."""
PAGE_WRITTEN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of a page as it is sent, four times the stored ones: Atom is longer, so are selected names that miss. Ours."""
PAGE_SECONDS_MAX: Final = 5
"""The time after which a page ends with a continuation token, even if the page is empty (wire 6.6)."""
SELECT_NAMES_MAX: Final = 255
"""Names in `$select` (wire 5.6)."""
FILTER_STEPS_MAX: Final = 800
"""How deep a filter may nest, in steps of the service's parser: eight for a parenthesis, one for a `not` (wire 6.6)."""
FILTER_KEY_RANGES_MAX: Final = 1000
"""Disjoint key ranges of a plan, one for each entity of a page. A plan with more reads the range around them. Ours."""
SCAN_ROWS_PER_READ: Final = 500
"""Rows that a filtered scan reads from the engine at a time: of 1 KiB each, half a MiB in memory. Ours."""
SCAN_ROWS_PER_HINTED_READ: Final = 1000
"""The same for a read with hints, because the engine leaves out most rows. Ours."""
SCAN_ROWS_PER_REMOTE_READ: Final = 3000
"""The most for an engine that asks other servers. Each read of a scan doubles the rows, because it costs round trips.
Entities of 1 KiB are 3 MiB. Ours."""
TURN_SECONDS: Final = 0.001
"""How long a scan, a batch or the writing of a page runs before others have a turn: some ten point reads. Ours."""

# Azure throttles beyond these targets, and so does a server with `--targets azure`.
PARTITION_RATE_TARGET: Final = 2_000
"""Entities a second in one partition, of 1 KiB each ("Scalability and performance targets for Table storage")."""
ACCOUNT_RATE_TARGET: Final = 20_000
"""Requests a second of a whole account, of an entity of 1 KiB each (the same page: "maximum request rate")."""

# Entity group transactions.
CHANGE_SET_OPERATIONS_MAX: Final = 100
"""Operations in one change set (wire 7.1)."""

# Changes of tables and documents.
COMMIT_ATTEMPTS_MAX: Final = 1000
"""Attempts to change a table or a document; each conflict is another's success. Then it is ServerBusy. Ours."""

# Table deletion.
SWEEP_ROWS_PER_STEP: Final = 500
"""Rows of a deleted table that are removed at a time, as many as a scan reads. Requests run in between. Ours."""
SWEEP_AGAIN_SECONDS: Final = 60
"""When a deleted table is swept again, for writes that were under way at its deletion: they end within 30 s. Ours."""

# Stored access policies.
SIGNED_IDENTIFIERS_MAX: Final = 5
"""Stored access policies of a table (auth 7)."""
SIGNED_IDENTIFIER_LENGTH_MAX: Final = 64
"""Characters in the id of a stored access policy (auth 7)."""

# Service properties.
RETENTION_DAYS_MAX: Final = 365
"""Days in a retention policy for logs or metrics (auth 8.2)."""
CORS_RULES_MAX: Final = 5
"""CORS rules of an account (auth 8.2)."""
CORS_TEXT_BYTES_MAX: Final = 2048
"""Bytes of all CORS rules together, without the XML tags (auth 8.2)."""
CORS_ORIGINS_MAX: Final = 64
"""Origins in one CORS rule (auth 8.2)."""
CORS_HEADERS_MAX: Final = 64
"""Literal names in a CORS rule's list of allowed headers or of exposed headers (auth 8.2)."""
CORS_HEADER_PREFIXES_MAX: Final = 2
"""Names that end in `*` in such a list (auth 8.2)."""
CORS_ITEM_LENGTH_MAX: Final = 256
"""Characters of one origin or header name in a CORS rule (auth 8.2)."""
