"""An account of a storage, as a client needs it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StorageAccount:
    """An account of a storage: its name, its key and its endpoint."""

    name: str
    key: str = field(repr=False)
    endpoint: str

    @property
    def connection_string(self) -> str:
        """The connection string, as the SDKs of all languages read it."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.name};AccountKey={self.key};"
            f"TableEndpoint={self.endpoint};"
        )
