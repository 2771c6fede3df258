"""Reads Azurite's file of tables, `__azurite_db_table__.json`, a database of LokiJS, without Azurite.

It has a collection for each table, and one that lists the tables of all accounts. Properties are written as in the
protocol, except a Guid: base64 of its text.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from tablestone.tools import odata
from tablestone.tools.errors import TransferRefused, refusing_unreadable

_START: Final = re.compile(rb'{"filename":"[^"]*__azurite_db_table__\.json"')
_LIST: Final = "$TABLES_COLLECTION$"

Tables = dict[str, list[dict[str, Any]]]
"""The entities of each table, in the form of the protocol."""


def is_azurite_file(path: str) -> bool:
    """Whether a file is Azurite's, under any name. False if it cannot be read: the reader of the file says why."""
    try:
        with Path(path).open("rb") as file:
            return _START.match(file.read(8192)) is not None
    except OSError:
        return False


def _accounts_of(path: str) -> dict[str, Tables]:
    with refusing_unreadable(path):
        content = Path(path).read_bytes()
    try:
        collections = {each["name"]: each["data"] for each in orjson.loads(content)["collections"]}
        accounts: dict[str, Tables] = {}
        for listed in collections[_LIST]:
            account, table = listed["account"], listed["table"]
            exact = collections.get(f"{account}${table}", [])
            entities = collections.get(f"{account}${table.lower()}", exact)
            accounts.setdefault(account, {})[table] = [
                _in_the_protocol(each["properties"]) for each in entities
            ]
    except (ValueError, KeyError, TypeError) as error:
        raise TransferRefused(
            f"{path} is not a whole file of Azurite: {type(error).__name__}, {error}."
        ) from None
    return accounts


def tables_of(
    path: str, account: str, named: str | None, table: str | None
) -> tuple[Tables, list[str]]:
    """The tables to import, all or one, and the accounts that are left out.

    They are the tables of the account `named`, else of `account`, which gets them, else of the file's only account.
    """
    accounts = _accounts_of(path)
    source = named or (
        account if account in accounts or len(accounts) != 1 else next(iter(accounts))
    )
    if source not in accounts:
        has = f" It has those of {', '.join(accounts)}: --from-account names one."
        absent = f"{path} has no tables of the account {source}."
        raise TransferRefused(absent + (has if accounts else ""))
    tables = accounts.pop(source)
    if table is not None:
        tables = {name: rows for name, rows in tables.items() if name.lower() == table.lower()}
        if not tables:
            owners = [each for each in accounts if table.lower() in map(str.lower, accounts[each])]
            hint = f" Account {owners[0]} has it: --from-account {owners[0]}." if owners else ""
            raise TransferRefused(f"{path} has no table {table} of the account {source}.{hint}")
    return tables, list(accounts)


def _in_the_protocol(properties: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(properties)
    for name, value in properties.items():
        if properties.get(name + odata.ANNOTATION) == "Edm.Guid" and isinstance(value, str):
            # Old versions of Azurite stored the text itself.
            with suppress(binascii.Error, UnicodeDecodeError):
                found[name] = b64decode(value, validate=True).decode("ascii")
    return found
