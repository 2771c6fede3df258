"""Making a shared access signature: the parameters of an account SAS or a table SAS, with `sig` behind them.

Uses the same strings to sign as the check of a signature. Knows no accounts and no time.
"""

from __future__ import annotations

from collections.abc import Mapping

from tablestone.auth.account_keys import SigningKey, decode_key
from tablestone.auth.sas.account_sas import string_to_sign_account_sas
from tablestone.auth.sas.table_sas import string_to_sign_table_sas


def signed_sas(account: str, key: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters and `sig`, with a key in base64: of a table SAS if they name a table (`tn`), else of an account.

    Raises `ValueError` for a key that is not base64.
    """
    given = dict(parameters)
    text = string_to_sign_table_sas if "tn" in given else string_to_sign_account_sas
    signature = SigningKey(decode_key(key)).signature(text(account, given).encode("utf-8"))
    return {**given, "sig": signature.decode("ascii")}
