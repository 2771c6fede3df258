"""The errors of the driver in words: the driver's own texts list addresses, codes and Python objects.

The driver is imported here, so this module is only imported when a cluster is opened.
"""

from __future__ import annotations

from cassandra.cluster import NoHostAvailable

import cassandra


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
    return f"the log has the driver's error ({type(error).__name__})"
