"""The documents with the secrets with which the server signs: their names, and the reader of a secret."""

from __future__ import annotations

import base64
from typing import Final

from tablestone.tables.documents import Members

DELEGATION: Final = "user-delegation"
"""The name of the document with the secret from which user delegation keys are derived."""
OWN_KEY: Final = "token-key"
"""The name of the document with the server's own key pair, which signs tokens."""


def read_secret(members: Members) -> bytes:
    """The secret that a document contains."""
    return base64.b64decode(members["secret"])
