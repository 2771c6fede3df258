"""The errors of the driver: their groups, and their reasons in words, without addresses, codes and Python objects.

The driver is imported here, so this module is only imported when a cluster is opened.
"""

from __future__ import annotations

import re
from typing import Final

from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage, RequestValidationException

import cassandra

REFUSED: Final = (cassandra.RequestValidationException, RequestValidationException)
"""A node refused the statement itself, and will do it again. The driver has two classes, and raises both."""
PASSING: Final = (
    *(cassandra.DriverException, NoHostAvailable),
    *(ConnectionException, ErrorMessage),
)
"""Apart from `REFUSED`: a statement was not carried out now, and may be when it is sent again."""
FROM_A_NODE: Final = (
    *(cassandra.RequestExecutionException, cassandra.RequestValidationException),
    ErrorMessage,
)
"""A node has answered, with an error. All others come from the driver itself."""

_OF_THE_NODE: Final = re.compile(r'message="(.*)"', re.DOTALL)


def in_words(error: Exception) -> str:
    """The reason of an error, as the second half of a sentence."""
    if isinstance(error, NoHostAvailable):
        return "no node can be reached"
    if isinstance(error, cassandra.Unavailable):
        return "too few of the nodes that have the data are up"
    if isinstance(error, cassandra.Timeout | cassandra.OperationTimedOut):
        return "too few nodes answered in time"
    if isinstance(error, cassandra.CoordinationFailure):
        return "a node failed to carry it out"
    if isinstance(error, cassandra.Unauthorized | cassandra.AuthenticationFailed):
        return "this user may not do that"
    if isinstance(error, ConnectionException):
        return "the connection to a node has ended"
    return f"the log has the driver's error ({type(error).__name__})"


def words_of_the_node(refused: Exception) -> str:
    """The text with which a node refuses a statement, in one line and without a stop at its end."""
    found = _OF_THE_NODE.search(str(refused))
    return " ".join((found[1] if found else str(refused)).split()).rstrip(".")
