"""Every limit of the service and of this server, each with its source, in one place and nowhere else.

Numbers only: what happens when one is exceeded stands where it is checked. "wire N" and "auth N" are the sections
of the protocol specification the project is written from; Microsoft's "Understanding the Table service data model"
is cited as "data model".
"""

from __future__ import annotations

from typing import Final

# Names and keys.
TABLE_NAME_LENGTH_MIN: Final = 3
"""Characters (wire 1.4)."""
TABLE_NAME_LENGTH_MAX: Final = 63
"""Characters (wire 1.4)."""
KEY_LENGTH_MAX: Final = 1024
"""UTF-16 units in a PartitionKey or RowKey that is written (wire 9, note on key length; wire 14 row 3)."""
PROPERTY_NAME_LENGTH_MAX: Final = 255
"""UTF-16 units (data model; wire 9)."""

# Entities.
ENTITY_PROPERTIES_MAX: Final = 252
"""Properties besides PartitionKey, RowKey and Timestamp (data model; wire 9)."""
ENTITY_SIZE_BYTES_MAX: Final = 1024 * 1024
"""By the formula of wire 9, not by the length of any payload."""
STRING_LENGTH_MAX: Final = 32 * 1024
"""UTF-16 units in an Edm.String (wire 9)."""
BINARY_LENGTH_MAX: Final = 64 * 1024
"""Bytes in an Edm.Binary (wire 9)."""
GEOGRAPHY_POINT_SIZE_BYTES: Final = 24
"""What an Edm.GeographyPoint, our extension, counts towards the entity's size: three doubles."""

# Requests.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""A longer body is refused with 413 RequestBodyTooLarge (wire 9)."""
BODY_BYTES_DISCARDED_MAX: Final = 64 * 1024 * 1024
"""How much of a body that is too long is read and thrown away, so that its sender hears why; ours."""
HEADERS_BYTES_MAX: Final = 64 * 1024
"""Bytes of all headers together; more is answered 431 and nothing else. Ours, near what HTTP servers allow."""
HOST_LENGTH_MAX: Final = 261
"""Bytes of the Host header: a name of the longest length that DNS has, with a port. Ours."""
URL_LENGTH_MAX: Final = 64 * 1024 - 1
"""Bytes of the request target: what the HTTP parser can count (httptools, in 16 bits). A longer one is no request to
it, and answered 400 in plain text. Filters take tens of KiB (wire 6.6)."""
XML_NODES_MAX: Final = 4096
"""Elements and attributes of an XML document; an entity of 252 properties has about 800. Ours."""
XML_TAG_BYTES_MAX: Final = 64 * 1024
"""About how long a tag of an XML document may be with all its attributes: this is refused, or a little more. Ours."""
XML_NAMESPACE_LENGTH_MAX: Final = 256
"""Characters of the URI of a namespace that an XML document declares; those of Atom have up to 65. Ours."""
XML_DEPTH_MAX: Final = 16
"""Elements inside each other in an XML document; CORS rules need 4, an Atom entry 4. Ours."""
REQUEST_HEAD_BYTES_MAX: Final = 256 * 1024
"""Bytes of a request line and headers that come in pieces, before the connection is ended with 431; ours."""
REQUEST_HEAD_SECONDS_MAX: Final = 30
"""How long the first request's line and headers may take to be whole from the connection on, and later ones' that come
in pieces; ours."""
CLIENT_REQUEST_ID_LENGTH_MAX: Final = 1024
"""Bytes of x-ms-client-request-id that are echoed (wire 2.2)."""
CLOCK_SKEW_SECONDS_MAX: Final = 15 * 60
"""How far the signed date may be from the server's, either way (auth 1.4)."""
TOKEN_LENGTH_MAX: Final = 16 * 1024
"""Bytes of a bearer token; one of Entra ID with 200 groups has about 12 KiB. Ours."""
TOKEN_LEEWAY_SECONDS: Final = 60
"""How far the clocks of a token's issuer and of the server may differ; ours."""
USER_DELEGATION_KEY_SECONDS_MAX: Final = 7 * 24 * 60 * 60
"""How long after now a user delegation key may end (auth 3.11; Azure's documentation of the operation)."""
BODY_READ_SECONDS_MAX: Final = 30
"""How long the server waits for the next piece of a body; the service's own time for a whole request is 30 s."""
BODY_DISCARD_SECONDS_MAX: Final = 2
"""How long the server takes a body off the connection that it has refused unread; ours."""

# Queries.
PAGE_ENTITIES_MAX: Final = 1000
"""Entities in one page, and the largest `$top` (wire 6.6, 6.7)."""
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A page stops when it has reached this (wire 6.6; wire 14 row 17)."""
PAGE_WRITTEN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of a page as it is written, where that is more than is stored: in Atom, or with absent names selected. Ours."""
PAGE_SECONDS_MAX: Final = 5
"""A page stops after this time, with a continuation token, be it empty (wire 6.6)."""
SELECT_NAMES_MAX: Final = 255
"""Names in `$select` (wire 5.6)."""
FILTER_DEPTH_MAX: Final = 500
"""Nesting of parentheses and `not` in a filter ("a few hundred", wire 6.1)."""
FILTER_KEY_RANGES_MAX: Final = 1000
"""Disjoint key ranges a plan may have before it falls back to their hull; ours."""
SCAN_ROWS_PER_READ: Final = 500
"""Rows a filtered scan asks of the engine at a time; ours."""
SCAN_ROWS_PER_HINTED_READ: Final = 1000
"""The same where the engine leaves out most of them; ours."""
TURN_SECONDS: Final = 0.001
"""How long a scan, a batch or the writing of a page goes on before other requests get their turn; ours."""

# Entity group transactions.
CHANGE_SET_OPERATIONS_MAX: Final = 100
"""Operations in one change set (wire 7.1)."""

# Writes.
COMMIT_ATTEMPTS_MAX: Final = 1000
"""How often a merge that named no ETag is tried again when another write came between; then ServerBusy. Ours."""

# Table deletion.
SWEEP_ROWS_PER_STEP: Final = 500
"""Rows of a deleted table that are removed at a time, between which requests get their turn; ours."""
SWEEP_AGAIN_SECONDS: Final = 60
"""A deleted table is swept once more after this, for writes that were under way when it was deleted; ours."""

# Stored access policies.
SIGNED_IDENTIFIERS_MAX: Final = 5
"""Stored access policies of a table (auth 7)."""
SIGNED_IDENTIFIER_LENGTH_MAX: Final = 64
"""Characters in the id of a stored access policy (auth 7)."""

# Service properties.
RETENTION_DAYS_MAX: Final = 365
"""Days that logs or metrics are to be kept (auth 8.2)."""
CORS_RULES_MAX: Final = 5
"""CORS rules of an account (auth 8.2)."""
CORS_TEXT_BYTES_MAX: Final = 2048
"""Bytes of all CORS rules together, without their tags (auth 8.2)."""
CORS_ORIGINS_MAX: Final = 64
"""Origins in one CORS rule (auth 8.2)."""
CORS_HEADERS_MAX: Final = 64
"""Literal names in a CORS rule's list of allowed or of exposed headers (auth 8.2)."""
CORS_HEADER_PREFIXES_MAX: Final = 2
"""Names that end in `*` in such a list (auth 8.2)."""
CORS_ITEM_LENGTH_MAX: Final = 256
"""Characters of one origin or header name in a CORS rule (auth 8.2)."""
