"""Each kind of document held against what reads it, for `tablestone check`: what cannot be read would fail requests.

A reader raises `ValueError`, `KeyError`, `TypeError` or `AttributeError` for what is no such document, and no message
has anything of a key or a secret in it. Changes nothing.
"""

from __future__ import annotations

from tablestone.auth.accounts import Account
from tablestone.auth.roles import Assignments
from tablestone.auth.user_delegation import SECRET_LENGTH
from tablestone.server.accounts import StoredAccount
from tablestone.server.identities import DELEGATION, OWN_KEY, read_secret
from tablestone.tables.check import DocumentReaders
from tablestone.tables.documents import DocumentKind, Members


def _read_account(name: str, members: Members) -> None:
    stored = StoredAccount.from_members(members)
    if stored.name != name:
        raise ValueError("it is of an account of another name")
    Account(stored.name, stored.keys, stored.account_id, stored.tenure)


def _read_roles(_name: str, members: Members) -> None:
    for assignment in Assignments.read(members):
        if not isinstance(assignment.table, str | None):
            raise TypeError("it gives a role for a table whose name is no text")


def _read_secrets(name: str, members: Members) -> None:
    if name == DELEGATION:
        if len(read_secret(members)) != SECRET_LENGTH:
            raise ValueError("its secret has another length")
    elif name == OWN_KEY:
        from tablestone.auth.token_issuer import require_whole  # noqa: PLC0415 - cryptography loads slowly

        require_whole(members)
    else:
        raise ValueError("it is a secret for no known use")


DOCUMENT_READERS: DocumentReaders = {
    DocumentKind.ACCOUNT: _read_account,
    DocumentKind.ROLES: _read_roles,
    DocumentKind.SECRETS: _read_secrets,
}
