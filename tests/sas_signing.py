"""Shared access signatures for the tests, written from the protocol and not from the server's code.

Parameters are texts by name, as in a URL before encoding. Uses the standard library and `signing`, and must not import
anything of tablestone.
"""

from collections.abc import Mapping
from urllib.parse import quote

from signing import signature

SAS_VERSION = "2019-02-02"
EXPIRY = "2034-05-06T00:00:00Z"


def account_string_to_sign(account: str, parameters: Mapping[str, str]) -> str:
    """Nine values, ten from 2020-12-06 on, each followed by a line feed (auth 2.2)."""
    names = ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"]
    if parameters["sv"] >= "2020-12-06":
        names.append("ses")
    values = [account] + [parameters.get(name, "") for name in names]
    return "".join(value + "\n" for value in values)


def table_string_to_sign(account: str, parameters: Mapping[str, str]) -> str:
    """Twelve values, ten before 2015-04-05, separated by line feeds (auth 3.2)."""
    version, table = parameters["sv"], parameters["tn"].lower()
    values = [parameters.get(name, "") for name in ("sp", "st", "se")]
    is_old = version < "2015-02-21"
    values.append(f"/{account}/{table}" if is_old else f"/table/{account}/{table}")
    values.append(parameters.get("si", ""))
    if version >= "2015-04-05":
        values += [parameters.get("sip", ""), parameters.get("spr", "")]
    values.append(version)
    values += [parameters.get(name, "") for name in ("spk", "srk", "epk", "erk")]
    return "\n".join(values)


def signed(account: str, key: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters followed by `sig`: a table SAS if they name a table, else an account SAS."""
    is_table = "tn" in parameters
    to_sign = (table_string_to_sign if is_table else account_string_to_sign)(account, parameters)
    return {**parameters, "sig": signature(key, to_sign)}


def completed(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters with default version and expiry; "-" leaves one out."""
    given = {"sv": SAS_VERSION, "se": EXPIRY, **parameters}
    return {name: value for name, value in given.items() if value != "-"}


def query_of(parameters: Mapping[str, str]) -> str:
    """A query string with everything but letters and digits encoded."""
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())


def user_delegation_string_to_sign(account: str, parameters: Mapping[str, str]) -> str:
    """The layout of queues applied to tables: the key replaces the policy, and the key range follows (auth 3.11)."""
    values = [parameters.get(name, "") for name in ("sp", "st", "se")]
    values.append(f"/table/{account}/{parameters['tn'].lower()}")
    of_key = ("skoid", "sktid", "skt", "ske", "sks", "skv", "skdutid", "sduoid")
    after = ("sip", "spr", "sv", "spk", "srk", "epk", "erk")
    values += [parameters.get(name, "") for name in (*of_key, *after)]
    return "\n".join(values)


def signed_by_user(account: str, key: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters followed by `sig`; `key` is the user's, in base64, and `parameters` say whose."""
    to_sign = user_delegation_string_to_sign(account, parameters)
    return {**parameters, "sig": signature(key, to_sign)}
