"""The form of a signature, and the sentences that refuse what no service would accept (auth 2.1, 3.1). Pure.

Each of permissions and end is in the signature or in the stored access policy, not in both. Knows forms and policies;
signs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tablestone.explorer.posted_forms import PostedForm
from tablestone.model.signature_values import is_client_addresses
from tablestone.model.table_names import TABLE_NAME
from tablestone.tools.refusals import TransferRefused
from tablestone.tools.service_settings import AccessPolicy

TABLE_LETTERS: Final = {"r": "read", "a": "add", "u": "update", "d": "delete"}
ACCOUNT_LETTERS: Final = {
    "r": "read",
    "w": "write",
    "d": "delete",
    "l": "list",
    "a": "add",
    "c": "create",
    "u": "update",
}
LASTS: Final = {"1h": 3600, "1d": 86_400, "7d": 604_800, "30d": 2_592_000}
"""The times that a new signature can last, in seconds."""
USUAL_SECONDS: Final = LASTS["1d"]
_KEYS: Final = {
    "start_pk": "The first PartitionKey",
    "start_rk": "The first RowKey",
    "end_pk": "The last PartitionKey",
    "end_rk": "The last RowKey",
}


@dataclass(frozen=True)
class AskedSignature:
    """A signature that is asked for: of a table, or of the account if `table` is empty.

    `seconds` is the time that it lasts, None for the usual one. `keys` are the bounds that are given, by
    their names in the form.
    """

    table: str
    letters: str
    policy: str
    seconds: int | None
    addresses: str | None
    https_only: bool
    keys: Mapping[str, str]


def read_signature_form(form: PostedForm) -> AskedSignature:
    """The form; `TransferRefused` for what is wrong whatever policies the table has."""
    table, policy = form.text("table").strip(), form.text("policy").strip()
    if table and TABLE_NAME.fullmatch(table) is None:
        raise TransferRefused(f"{table[:80]!r} is no name of a table.")
    if policy and not table:
        raise TransferRefused("A stored access policy is one of a table: name the table too.")
    keys = {name: text for name in _KEYS if (text := form.text(name))}
    _check_keys(keys, table)
    addresses = form.text("ip").strip() or None
    if addresses is not None and not is_client_addresses(addresses):
        raise TransferRefused(
            f"Addresses of clients must be an address, or two with a hyphen between, not {addresses[:80]!r}."
        )
    lasts = form.text("lasts")
    if lasts and lasts not in LASTS:
        raise TransferRefused("The time that the signature lasts is not known.")
    letters = _letters(form, table)
    if not letters and not policy:
        raise TransferRefused("Choose what the signature allows, or name a policy of the table.")
    https_only = bool(form.text("https"))
    return AskedSignature(table, letters, policy, LASTS.get(lasts), addresses, https_only, keys)


def seconds_beside(asked: AskedSignature, stored: AccessPolicy | None) -> int | None:
    """The time that the signature lasts, None if the policy has its end. `stored` is the policy, if one is named.

    `TransferRefused` if the signature and the policy would both have a value, or neither.
    """
    if stored is None:
        return asked.seconds or USUAL_SECONDS
    name = f"The policy {stored.id!r}"
    if asked.letters and stored.permission:
        raise TransferRefused(
            f"{name} has permissions ({stored.permission}), and a signature cannot have others: choose none."
        )
    if not asked.letters and not stored.permission:
        raise TransferRefused(f"{name} has no permissions: choose what the signature allows.")
    if asked.seconds is not None and stored.expiry:
        raise TransferRefused(
            f"{name} has an end ({stored.expiry}), and a signature cannot have another: choose no time."
        )
    return None if stored.expiry else asked.seconds or USUAL_SECONDS


def _check_keys(keys: Mapping[str, str], table: str) -> None:
    if keys and not table:
        raise TransferRefused("A range of keys is one of a table: name the table too.")
    for name, words in _KEYS.items():
        if "\n" in keys.get(name, ""):
            raise TransferRefused(f"{words} of a signature must be one line.")
    for end, words in (("start", "first"), ("end", "last")):
        if f"{end}_rk" in keys and f"{end}_pk" not in keys:
            raise TransferRefused(f"The {words} RowKey needs the {words} PartitionKey.")


def _letters(form: PostedForm, table: str) -> str:
    chosen = [letter for letter in ACCOUNT_LETTERS if form.text(f"may_{letter}")]
    if not table:
        return "".join(chosen)
    unknown = [ACCOUNT_LETTERS[letter] for letter in chosen if letter not in TABLE_LETTERS]
    if unknown:
        raise TransferRefused(
            f"A signature of a table has the permissions read, add, update and delete only, not {' or '.join(unknown)}."
        )
    return "".join(letter for letter in TABLE_LETTERS if letter in chosen)
