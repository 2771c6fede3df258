"""The one error class, and the table of every error code with its status and text.

Codes and texts are the service's own (wire 8, 9 and 11, auth 5). Does not know HTTP headers or payload formats:
`wire.encode` writes the answer of an error. If several errors apply, the order of the steps of a request decides which
one wins (see PRECEDENCE).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ErrorRow(NamedTuple):
    """One row of the table: the HTTP status and the text that the client gets."""

    status: int
    text: str


_AUTHENTICATION = (
    "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly "
    "including the signature."
)
CHALLENGE_TEXT: Final = (
    "Server failed to authenticate the request. Please refer to the information in the "
    "www-authenticate header."
)
"""The text of a 401; its code depends on whether the request has credentials (auth 5.2)."""

ERRORS: Final[dict[str, ErrorRow]] = {
    # Tables and entities (wire 11.1).
    "TableAlreadyExists": ErrorRow(409, "The table specified already exists."),
    "TableBeingDeleted": ErrorRow(
        409, "The specified table is being deleted. Try operation later."
    ),
    "TableNotFound": ErrorRow(404, "The table specified does not exist."),
    "EntityAlreadyExists": ErrorRow(409, "The specified entity already exists."),
    "UpdateConditionNotSatisfied": ErrorRow(
        412, "The update condition specified in the request was not satisfied."
    ),
    "PropertiesNeedValue": ErrorRow(
        400, "The values are not specified for all properties in the entity."
    ),
    "PropertyNameInvalid": ErrorRow(400, "The property name is invalid."),
    "PropertyNameTooLong": ErrorRow(
        400, "The property name exceeds the maximum allowed length (255)."
    ),
    "PropertyValueTooLarge": ErrorRow(
        400,
        "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 "
        "encoded and the maximum number of characters should be 32K or less.",
    ),
    "TooManyProperties": ErrorRow(
        400,
        "The entity contains more properties than allowed. Each entity can include up to 252 properties to store "
        "data. Each entity also has 3 system properties.",
    ),
    "EntityTooLarge": ErrorRow(400, "The entity is larger than the maximum allowed size (1MB)."),
    "DuplicatePropertiesSpecified": ErrorRow(400, "A property is specified more than once."),
    "CommandsInBatchActOnDifferentPartitions": ErrorRow(
        400, "All commands in a batch must operate on same entity group."
    ),
    "InvalidDuplicateRow": ErrorRow(
        400,
        "The batch request contains multiple changes with same row key. An entity can appear only once in a batch "
        "request.",
    ),
    # Formats and verbs (wire 5.1, 3.10).
    "JsonFormatNotSupported": ErrorRow(415, "JSON format is not supported."),
    "AtomFormatNotSupported": ErrorRow(415, "Atom format is not supported."),
    "JsonVerboseFormatNotSupported": ErrorRow(415, "Verbose JSON format is not supported."),
    "MediaTypeNotSupported": ErrorRow(415, "None of the provided media types are supported"),
    "MethodNotAllowed": ErrorRow(
        405, "The requested method is not allowed on the specified resource."
    ),
    "NotImplemented": ErrorRow(
        501, "The requested operation is not implemented on the specified resource."
    ),
    "XMethodNotUsingPost": ErrorRow(
        400, "The request uses X-HTTP-Method with a Http Verb that is not POST."
    ),
    "XMethodIncorrectValue": ErrorRow(400, "The specified X-HTTP-Method is invalid."),
    "XMethodIncorrectCount": ErrorRow(400, "More than one X-HTTP-Method is specified."),
    # Common (wire 11.2).
    "ResourceNotFound": ErrorRow(404, "The specified resource does not exist."),
    "InvalidResourceName": ErrorRow(400, "The specifed resource name contains invalid characters."),
    "InvalidInput": ErrorRow(400, "One of the request inputs is not valid."),
    "OutOfRangeInput": ErrorRow(400, "One of the request inputs is out of range."),
    "InvalidUri": ErrorRow(400, "The requested URI does not represent any resource on the server."),
    "InvalidHttpVerb": ErrorRow(
        400, "The HTTP verb specified is invalid - it is not recognized by the server."
    ),
    "HostInformationNotPresent": ErrorRow(
        400,
        "The Host information is not present in the request. You must send a non-empty Host header or include the "
        "absolute URI in the request line.",
    ),
    "InvalidHeaderValue": ErrorRow(
        400, "The value for one of the HTTP headers is not in the correct format."
    ),
    "MissingRequiredHeader": ErrorRow(
        400, "An HTTP header that is mandatory for this request is not specified."
    ),
    "MissingContentLengthHeader": ErrorRow(411, "The Content-Length header was not specified."),
    "InvalidQueryParameterValue": ErrorRow(
        400, "Value for one of the query parameters specified in the request URI is invalid."
    ),
    # The feed of changes, which the service does not have (docs/protocol/changes.md).
    "InvalidChangeCursor": ErrorRow(
        400, "The cursor in the parameter since is not one of this feed."
    ),
    "ChangesNotKept": ErrorRow(
        410,
        "The changes from there on are not kept any more. Begin again: take a cursor with since=now, copy the "
        "entities to where there are none, and go on from the cursor.",
    ),
    # Expiry, which the service does not have (docs/guides/expiry.md).
    "TableNotEmpty": ErrorRow(
        409,
        "The table holds entities, expired or not. Use tablestone expiry, which counts them first.",
    ),
    "InvalidXmlDocument": ErrorRow(400, "XML specified is not syntactically valid."),
    "InvalidXmlNodeValue": ErrorRow(
        400, "The value for one of the XML nodes is not in the correct format."
    ),
    "MultipleVersionsSpecified": ErrorRow(
        400,
        "Request can specify either x-ms-version header or api-version query parameter but not both.",
    ),
    "ConditionNotMet": ErrorRow(
        412, "The condition specified using HTTP conditional header(s) is not met."
    ),
    "RequestBodyTooLarge": ErrorRow(
        413, "The request body is too large and exceeds the maximum permissible limit."
    ),
    "InternalError": ErrorRow(
        500, "Server encountered an internal error. Please try again after some time."
    ),
    "OperationTimedOut": ErrorRow(
        500, "Operation could not be completed within the specified time."
    ),
    "ServerBusy": ErrorRow(503, "The server is busy."),
    # Authentication and authorization (wire 8.4, auth 5.2).
    "AuthenticationFailed": ErrorRow(403, _AUTHENTICATION),
    "InvalidAuthenticationInfo": ErrorRow(
        400,
        "Authentication information is not given in the correct format. Check the value of Authorization header.",
    ),
    "NoAuthenticationInformation": ErrorRow(401, CHALLENGE_TEXT),
    "AuthorizationFailure": ErrorRow(
        403, "This request is not authorized to perform this operation."
    ),
    "AuthorizationPermissionMismatch": ErrorRow(
        403, "This request is not authorized to perform this operation using this permission."
    ),
    "AuthorizationServiceMismatch": ErrorRow(
        403, "This request is not authorized to perform this operation using this service."
    ),
    "AuthorizationResourceTypeMismatch": ErrorRow(
        403, "This request is not authorized to perform this operation using this resource type."
    ),
    "AuthorizationProtocolMismatch": ErrorRow(
        403, "This request is not authorized to perform this operation using this protocol."
    ),
    "AuthorizationSourceIPMismatch": ErrorRow(
        403,
        "This request is not authorized to perform this operation using this source IP {SourceIP}.",
    ),
    "CorsPreflightFailure": ErrorRow(
        403, "CORS not enabled or no matching rule found for this request."
    ),
    "AccountRequiresHttps": ErrorRow(400, "The account being accessed does not support http."),
    "InsufficientAccountPermissions": ErrorRow(403, "Write operations are not allowed."),
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
"""The order in which errors win if several apply: the earliest (auth 11, wire 3.9). A test checks this list."""


RETRY_AFTER: Final = (("Retry-After", "1"),)
"""The header of `ServerBusy` by which a client knows after how many seconds it may try again (wire 9)."""


class StorageError(Exception):
    """An answer of the service that is not a success; raised anywhere above the engines, caught in one place.

    `early`: the service raises this error while parsing or binding, which changes two headers (wire 2.2).
    `operation_index`: the failed operation of an entity group transaction. `reason`: a more exact reason, for the
    server's log only; it contains nothing of the request. `detail`: the part of the request that the reason is about,
    for the debug level of the log; it never contains a key or a signature. `table`: if this table is missing, the
    owner gets TableNotFound instead of this error (wire 2.2). `at_front_door`: the service's front door answers this
    error, in a form of its own, after authentication (wire 8.3).
    """

    def __init__(
        self,
        code: str,
        text: str | None = None,
        *,
        early: bool = False,
        status: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        reason: str | None = None,
        detail: str | None = None,
        table: str | None = None,
        at_front_door: bool = False,
    ) -> None:
        row = ERRORS[code]
        super().__init__(code)
        self.code = code
        self.status = row.status if status is None else status
        self.text = row.text if text is None else text
        self.early = early
        self.operation_index: int | None = None
        self.headers = headers
        self.reason = reason
        self.detail = detail
        self.table = table
        self.at_front_door = at_front_door

    def at(self, operation_index: int | None) -> StorageError:
        """This error, as that of one operation of an entity group transaction."""
        self.operation_index = operation_index
        return self


def unknown_comp() -> StorageError:
    """The service's answer to a `comp` that it does not know."""
    return StorageError("InvalidQueryParameterValue", early=True, at_front_door=True)
