"""What holds for the answer to any input: it has a form of the service, and is never a failure of the server.

Knows the forms of errors and of payloads (wire 5, 8), but not which answer is right for a request.
"""

import json
import re
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree as ET

from stress.fuzz.http_session import Answer
from tablestone.model.errors import ERRORS

NOT_SERVED: Final = 501
"""`NotImplemented`: the service's own answer for what it does not support (wire 11.1). Any other 5xx is a failure."""
_PLAIN: Final = frozenset((400, 404, 431, 505))
"""Statuses of the HTTP layer, in plain text, for input that is not HTTP or is too long."""
_CODE_IN_XML: Final = re.compile(rb"<(?:\w+:)?[cC]ode>([A-Za-z]+)</")
_NO_CHARACTERS: Final = re.compile(rb"&#x(?:[0-8BCEF]|1[0-9A-F]|FFF[EF]);")
"""Characters that XML does not allow, as the service writes them in Atom (wire 5.7)."""
_NAMES: Final = re.compile(rb"(?<=<d:)[^ >/]+|(?<=</d:)[^ >/]+")
"""Property names follow the fifth edition of XML 1.0 (docs/compatibility.md). The parser here knows the fourth."""
_FAILED_PART: Final = re.compile(rb"^HTTP/1\.1 (5\d\d) ", re.MULTILINE)


def code_of(answer: Answer) -> str:
    """The error code of the service; empty if the body has none."""
    if answer.body.startswith(b"{"):
        code = json.loads(answer.body).get("odata.error", {}).get("code", "")
        return str(code).partition(":")[0]
    found = _CODE_IN_XML.search(answer.body)
    return found[1].decode() if found else answer.headers.get("x-ms-error-code", "")


def problems(answer: Answer, *, has_body: bool = True) -> Iterator[str]:
    """What is wrong with an answer, whatever the request was."""
    if answer.status >= 500 and answer.status != NOT_SERVED:
        yield f"status {answer.status}"
        return
    for status in _FAILED_PART.findall(answer.body):
        if answer.status == 202 and int(status) != NOT_SERVED:
            yield f"status {status.decode()} inside a batch"
    try:
        code = code_of(answer)
        content_type = answer.headers.get("content-type", "")
        if answer.body and content_type.startswith("application/json"):
            json.loads(answer.body)
        elif answer.body and "xml" in content_type:
            text = _NO_CHARACTERS.sub(b"?", answer.body.removeprefix(b"\xef\xbb\xbf"))
            text = _NAMES.sub(lambda name: re.sub(rb"[\x80-\xff]", b"x", name[0]), text)
            ET.fromstring(text)  # noqa: S314 - the server's own
    except (ValueError, ET.ParseError, AttributeError) as error:
        yield f"a body that cannot be read: {error}: {answer.body[:200]!r}"
        return
    if answer.status >= 400 and has_body:
        is_plain = "x-ms-request-id" not in answer.headers
        if is_plain and answer.status not in _PLAIN:
            yield f"a plain {answer.status}"
        elif not is_plain and code not in ERRORS:
            yield f"status {answer.status} without a code of the service: {answer.body[:200]!r}"
