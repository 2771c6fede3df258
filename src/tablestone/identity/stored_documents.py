"""Readers for each kind of document, for `tablestone check`: a document that cannot be read would fail requests.

A reader raises `ValueError`, `KeyError`, `TypeError` or `AttributeError` for an invalid document. No message contains
any part of a key or a secret. Changes nothing.
"""

from __future__ import annotations

from tablestone.auth.account_keys import Account
from tablestone.auth.roles import Assignments
from tablestone.auth.sas.user_delegation_key import SECRET_LENGTH
from tablestone.identity.known_accounts import StoredAccount
from tablestone.identity.secret_documents import DELEGATION, OWN_KEY, read_secret
from tablestone.tables.documents import DocumentKind, Members
from tablestone.tables.integrity import DocumentReaders


def _read_account(name: str, members: Members) -> None:
    stored = StoredAccount.from_members(members)
    if stored.name != name:
        raise ValueError("it is of an account of another name")
    Account(stored.name, stored.keys, stored.account_id, stored.incarnation)


def _read_roles(_name: str, members: Members) -> None:
    for assignment in Assignments.read(members):
        if not isinstance(assignment.table, str | None):
            raise TypeError("it gives a role for a table whose name is no text")


def _read_secrets(name: str, members: Members) -> None:
    if name == DELEGATION:
        if len(read_secret(members)) != SECRET_LENGTH:
            raise ValueError("its secret has another length")
    elif name == OWN_KEY:
        from tablestone.auth.tokens.token_issuer import require_whole  # noqa: PLC0415 - cryptography loads slowly

        require_whole(members)
    else:
        raise ValueError("it is a secret for no known use")


DOCUMENT_READERS: DocumentReaders = {
    DocumentKind.ACCOUNT: _read_account,
    DocumentKind.ROLES: _read_roles,
    DocumentKind.SECRETS: _read_secrets,
}
