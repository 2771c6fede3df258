"""A batch of prepared statements of one partition, put together without an object for each statement.

The driver is imported here, so this module is only imported when a cluster is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cassandra.query import BatchStatement, PreparedStatement


class PartitionBatch(BatchStatement):  # type: ignore[misc]
    """A batch of the driver whose statements all concern the partition of the first one."""

    def add(self, statement: PreparedStatement, parameters: Sequence[Any]) -> None:
        """Bind a statement. The driver's own `add` also looks for encrypted columns in each, and for its partition."""
        calls = self._statements_and_parameters
        if not calls:
            super().add(statement, parameters)
            return
        version = statement.protocol_version
        bound = [
            value if value is None else column.type.serialize(value, version)
            for value, column in zip(parameters, statement.column_metadata, strict=True)
        ]
        calls.append((True, statement.query_id, bound))
