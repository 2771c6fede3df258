"""The one error class, and the table of every error code with its status and text.

Codes and texts are the service's own (wire 8, 9 and 11, auth 5), except for changes, expiry and
indexes, which it does not have. Does not know HTTP headers or payload formats: `wire.encode` writes the answer. If
several errors apply, the order of the steps of a request decides which one wins (see PRECEDENCE).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class _Row(NamedTuple):
    """The HTTP status of an error code, and the text that the client gets."""

    status: int
    text: str
    early: bool = False
    """Whether the service raises it while it parses or binds, so that the answer lacks two headers (wire 2.2). Where an
    error is raised in the other phase, as a few are, the place says so."""


def _early(status: int, text: str) -> _Row:
    return _Row(status, text, early=True)


_AUTHENTICATION = (
    "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly "
    "including the signature."
)
CHALLENGE_TEXT: Final = (
    "Server failed to authenticate the request. Please refer to the information in the "
    "www-authenticate header."
)
"""The text of a 401. Its code depends on whether the request has credentials (auth 5.2)."""

ERRORS: Final[dict[str, _Row]] = {
    # Tables and entities (wire 11.1).
    "TableAlreadyExists": _Row(409, "The table specified already exists."),
    "TableBeingDeleted": _Row(409, "The specified table is being deleted. Try operation later."),
    "TableNotFound": _early(404, "The table specified does not exist."),
    "EntityAlreadyExists": _Row(409, "The specified entity already exists."),
    "UpdateConditionNotSatisfied": _Row(
        412, "The update condition specified in the request was not satisfied."
    ),
    "PropertiesNeedValue": _Row(
        400, "The values are not specified for all properties in the entity."
    ),
    "PropertyNameInvalid": _early(400, "The property name is invalid."),
    "PropertyNameTooLong": _Row(400, "The property name exceeds the maximum allowed length (255)."),
    "PropertyValueTooLarge": _Row(
        400,
        "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 "
        "encoded and the maximum number of characters should be 32K or less.",
    ),
    "TooManyProperties": _Row(
        400,
        "The entity contains more properties than allowed. Each entity can include up to 252 properties to store "
        "data. Each entity also has 3 system properties.",
    ),
    "EntityTooLarge": _Row(400, "The entity is larger than the maximum allowed size (1MB)."),
    "DuplicatePropertiesSpecified": _early(400, "A property is specified more than once."),
    "CommandsInBatchActOnDifferentPartitions": _Row(
        400, "All commands in a batch must operate on same entity group."
    ),
    "InvalidDuplicateRow": _Row(
        400,
        "The batch request contains multiple changes with same row key. An entity can appear only once in a batch "
        "request.",
    ),
    # Formats and verbs (wire 5.1, 3.10).
    "JsonFormatNotSupported": _early(415, "JSON format is not supported."),
    "AtomFormatNotSupported": _early(415, "Atom format is not supported."),
    "JsonVerboseFormatNotSupported": _early(415, "Verbose JSON format is not supported."),
    "MediaTypeNotSupported": _early(415, "None of the provided media types are supported"),
    "MethodNotAllowed": _early(
        405, "The requested method is not allowed on the specified resource."
    ),
    "NotImplemented": _early(
        501, "The requested operation is not implemented on the specified resource."
    ),
    "XMethodNotUsingPost": _early(
        400, "The request uses X-HTTP-Method with a Http Verb that is not POST."
    ),
    "XMethodIncorrectValue": _early(400, "The specified X-HTTP-Method is invalid."),
    "XMethodIncorrectCount": _early(400, "More than one X-HTTP-Method is specified."),
    # Common (wire 11.2).
    "ResourceNotFound": _Row(404, "The specified resource does not exist."),
    "InvalidResourceName": _early(400, "The specifed resource name contains invalid characters."),
    "InvalidInput": _early(400, "One of the request inputs is not valid."),
    "OutOfRangeInput": _early(400, "One of the request inputs is out of range."),
    "InvalidUri": _Row(400, "The requested URI does not represent any resource on the server."),
    "InvalidHttpVerb": _early(
        400, "The HTTP verb specified is invalid - it is not recognized by the server."
    ),
    "HostInformationNotPresent": _Row(
        400,
        "The Host information is not present in the request. You must send a non-empty Host header or include the "
        "absolute URI in the request line.",
    ),
    "InvalidHeaderValue": _Row(
        400, "The value for one of the HTTP headers is not in the correct format."
    ),
    "MissingRequiredHeader": _early(
        400, "An HTTP header that is mandatory for this request is not specified."
    ),
    "MissingContentLengthHeader": _Row(411, "The Content-Length header was not specified."),
    "InvalidQueryParameterValue": _early(
        400, "Value for one of the query parameters specified in the request URI is invalid."
    ),
    # The feed of changes, which the service does not have (docs/protocol/changes.md).
    "InvalidChangeCursor": _Row(400, "The cursor in the parameter since is not one of this feed."),
    "ChangesNotKept": _Row(
        410,
        "The changes from there on are not kept any more. Begin again: take a cursor with since=now, copy the "
        "entities to where there are none, and go on from the cursor.",
    ),
    # Expiry, which the service does not have (docs/guides/expiry.md).
    "TableNotEmpty": _Row(
        409,
        "The table holds entities, expired or not. Use tablestone expiry, which counts them first.",
    ),
    "NoExpiryPolicy": _Row(409, "The table has no expiry policy."),
    "CountNotFound": _Row(404, "There is no such count, or it is too old: count again."),
    "CountSpent": _Row(
        412,
        "The table or the policy has changed since the count, or the count is older than 10 minutes: count again.",
    ),
    # Indexes, which the service does not have (docs/protocol/indexes.md).
    "IndexAlreadyExists": _Row(409, "The table has an index on this property."),
    "TooManyIndexes": _Row(409, "The table has 16 indexes: more are not possible."),
    "IndexNotFound": _Row(404, "The table has no index on this property."),
    "FormatNotAllowed": _Row(
        403,
        "The first index moves the data directory to format 3 for good. Start the server with --remote-indexes, or "
        "use tablestone index create on its machine.",
    ),
    # What indexes and expiry ask of a request that changes them.
    "SharedKeyRequired": _Row(
        403, "This request needs SharedKey: SharedKeyLite does not sign the method."
    ),
    "SecureConnectionRequired": _Row(
        403,
        "This request comes over plain HTTP from another machine. Use HTTPS, or start the server with "
        "--remote-indexes.",
    ),
    "InvalidXmlDocument": _early(400, "XML specified is not syntactically valid."),
    "InvalidXmlNodeValue": _early(
        400, "The value for one of the XML nodes is not in the correct format."
    ),
    "MultipleVersionsSpecified": _Row(
        400,
        "Request can specify either x-ms-version header or api-version query parameter but not both.",
    ),
    "ConditionNotMet": _early(
        412, "The condition specified using HTTP conditional header(s) is not met."
    ),
    "RequestBodyTooLarge": _Row(
        413, "The request body is too large and exceeds the maximum permissible limit."
    ),
    "InternalError": _Row(
        500, "Server encountered an internal error. Please try again after some time."
    ),
    "OperationTimedOut": _Row(500, "Operation could not be completed within the specified time."),
    "ServerBusy": _Row(503, "The server is busy."),
    # Authentication and authorization (wire 8.4, auth 5.2).
    "AuthenticationFailed": _Row(403, _AUTHENTICATION),
    "InvalidAuthenticationInfo": _Row(
        400,
        "Authentication information is not given in the correct format. Check the value of Authorization header.",
    ),
    "KeyBasedAuthenticationNotPermitted": _Row(
        403, "Key based authentication is not permitted on this storage account."
    ),
    "NoAuthenticationInformation": _Row(401, CHALLENGE_TEXT),
    "AuthorizationFailure": _Row(403, "This request is not authorized to perform this operation."),
    "AuthorizationPermissionMismatch": _Row(
        403, "This request is not authorized to perform this operation using this permission."
    ),
    "AuthorizationServiceMismatch": _Row(
        403, "This request is not authorized to perform this operation using this service."
    ),
    "AuthorizationResourceTypeMismatch": _Row(
        403, "This request is not authorized to perform this operation using this resource type."
    ),
    "AuthorizationProtocolMismatch": _Row(
        403, "This request is not authorized to perform this operation using this protocol."
    ),
    "AuthorizationSourceIPMismatch": _Row(
        403,
        "This request is not authorized to perform this operation using this source IP {SourceIP}.",
    ),
    "CorsPreflightFailure": _Row(
        403, "CORS not enabled or no matching rule found for this request."
    ),
    "AccountRequiresHttps": _Row(400, "The account being accessed does not support http."),
    "InsufficientAccountPermissions": _Row(403, "Write operations are not allowed."),
}

PRECEDENCE: Final = (
    "address: does the URL name an account",
    "version: is x-ms-version a known version",
    "authentication",
    "resource: what the rest of the URL names, the verb on it, and the length of the body",
    "negotiation: can the answer have the requested form",
    "body: its media type, its syntax",
    "values: names, types, ranges",
    "authorization: do the caller's signature or roles permit the operation",
    "table: does it exist",
    "limits: of keys, of single values and of the entity; for callers other than the owner before authorization",
    "entity: does it exist, does its ETag match",
)
"""Which error wins if several apply: the earliest (auth 11, wire 3.9). A test checks this list."""


RETRY_AFTER: Final = ((b"Retry-After", b"1"),)
"""The header of `ServerBusy`: seconds after which a client may try again (wire 9)."""


class StorageError(Exception):
    """An answer of the service that is not a success; raised anywhere above the engines, caught in one place.

    `early`: the phase, if it is not that of the code's row. `operation_index`: the failed operation of an entity group
    transaction, set where its operations run. `reason`: a more exact reason, for the server's log only, without
    anything of the request. `detail`: the part of the request that the reason is about, for
    the debug level of the log, but never a key or a signature. `table`: if this table is missing, the owner gets
    TableNotFound instead (wire 2.2). `at_front_door`: the service's front door answers this error, in a form of its
    own, after authentication (wire 8.3). `by_rule`: a rule of the account refuses the request, as `reason` says.
    """

    def __init__(
        self,
        code: str,
        text: str | None = None,
        *,
        early: bool | None = None,
        status: int | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        reason: str | None = None,
        detail: str | None = None,
        table: str | None = None,
        at_front_door: bool = False,
        by_rule: bool = False,
    ) -> None:
        row = ERRORS[code]
        super().__init__(code)
        self.code = code
        self.status = row.status if status is None else status
        self.text = row.text if text is None else text
        self.early = row.early if early is None else early
        self.operation_index = 0
        self.headers = headers
        self.reason = reason
        self.detail = detail
        self.table = table
        self.at_front_door = at_front_door
        self.by_rule = by_rule


def unknown_comp() -> StorageError:
    """The service's answer to a `comp` that it does not know."""
    return StorageError("InvalidQueryParameterValue", at_front_door=True)
