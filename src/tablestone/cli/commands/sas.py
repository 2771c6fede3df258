"""`tablestone sas`: print shared access signatures, for curl and for clients without a key.

Refuses values that the service would refuse. `auth.shared_access_signature` makes the signed text.
"""

import os
import sys
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, urlencode

import click

from tablestone.auth.shared_access_signature import (
    VERSION_OF_CONDITIONS,
    VERSION_OF_TABLE_SAS,
    signed_sas,
)
from tablestone.cli.data_options import together
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.options import BrokenOption, with_options
from tablestone.cli.stored_data import KEY_OPTIONS, endpoint_of, keys_of
from tablestone.clock import system_clock
from tablestone.model.shared_access import (
    ACCOUNT_PERMISSIONS,
    TABLE_PERMISSIONS,
    end_after,
    is_client_addresses,
    key_range_problem,
    parse_instant,
)
from tablestone.wire.versions import VERSIONS

VERSION: Final = "2019-02-02"
"""The version that current SDKs sign with."""
RESOURCE_TYPES: Final = "sco"


_shared = together(
    click.option("--start", metavar="TIME", help="When it begins to be valid, as --expiry."),
    click.option(
        "--expiry",
        metavar="TIME",
        help="When it ends: 2030-01-31T12:00:00Z, or from now on 30m, 12h or 7d.",
    ),
    click.option(
        "--ip", metavar="ADDRESS[-ADDRESS]", help="Address or range of clients that may use it."
    ),
    click.option("--https-only", is_flag=True, help="Valid for requests over TLS only."),
    click.option(
        "--service-version",
        metavar="VERSION",
        default=VERSION,
        help="Version of the service whose rules sign it (sv).",
    ),
    click.option(
        "--key",
        "number",
        type=click.Choice(("1", "2")),
        default="1",
        help="Key of the account that signs it.",
    ),
    click.option("--url", "as_url", is_flag=True, help="Print a whole URL."),
    with_options(KEY_OPTIONS),
)
"""The options of both kinds."""


@click.group(
    epilog="With curl: curl -H 'Accept: application/json' "
    '"$(tablestone sas table ACCOUNT TABLE --permissions r --expiry 1h --url)"'
)
def sas() -> None:
    """Print shared access signatures, for curl and for clients without a key."""


@sas.command(name="account")
@click.argument("name", metavar="ACCOUNT")
@click.option(
    "--permissions",
    metavar="LETTERS",
    required=True,
    help=f"Some of {''.join(ACCOUNT_PERMISSIONS)}.",
)
@click.option(
    "--resource-types",
    metavar="LETTERS",
    default=RESOURCE_TYPES,
    help="s: service, c: tables, o: entities.",
)
@_shared
def account_sas(name: str, permissions: str, resource_types: str, **given: Any) -> None:
    """Print a signature for the tables of ACCOUNT."""
    parameters = {
        "sv": _version(given, VERSION_OF_CONDITIONS),
        "ss": "t",
        "srt": _letters("--resource-types", resource_types, RESOURCE_TYPES),
        "sp": _letters("--permissions", permissions, ACCOUNT_PERMISSIONS),
    }
    _print(name, parameters | _validity(given, needs_expiry=True), "", given)


@sas.command(name="table")
@click.argument("name", metavar="ACCOUNT")
@click.argument("table")
@click.option("--permissions", metavar="LETTERS", help="r: read, a: add, u: update, d: delete.")
@click.option("--policy", metavar="ID", help="Stored access policy that it follows.")
@click.option("--start-pk", metavar="KEY", help="First PartitionKey.")
@click.option("--start-rk", metavar="KEY", help="First RowKey of the first PartitionKey.")
@click.option("--end-pk", metavar="KEY", help="Last PartitionKey.")
@click.option("--end-rk", metavar="KEY", help="Last RowKey of the last PartitionKey.")
@_shared
def table_sas(
    name: str, table: str, permissions: str | None, policy: str | None, **given: Any
) -> None:
    """Print a signature for TABLE of ACCOUNT.

    Give --permissions and --expiry, or a --policy that says what the signature does not.
    """
    if policy is None and permissions is None:
        raise BrokenOption("Give --permissions, or a --policy that has them.")
    parameters = {"sv": _version(given, VERSION_OF_TABLE_SAS), "tn": table}
    if parameters["sv"] < VERSION_OF_CONDITIONS and (given["ip"] or given["https_only"]):
        raise BrokenOption(
            f"--ip and --https-only need --service-version {VERSION_OF_CONDITIONS} or later."
        )
    if permissions is not None:
        parameters["sp"] = _letters("--permissions", permissions, TABLE_PERMISSIONS)
    if policy is not None:
        parameters["si"] = policy
    for end in ("start", "end"):
        partition, row = given[f"{end}_pk"], given[f"{end}_rk"]
        if row is not None and partition is None:
            raise BrokenOption(f"--{end}-rk needs --{end}-pk.")
        keys = {f"{end[0]}pk": partition, f"{end[0]}rk": row}
        parameters |= {key: value for key, value in keys.items() if value is not None}
    field = key_range_problem(
        *(given[each] for each in ("start_pk", "start_rk", "end_pk", "end_rk"))
    )
    if field is not None:
        raise BrokenOption(f"--end-{field} is before --start-{field}: the range has no key.")
    _print(name, parameters | _validity(given, needs_expiry=policy is None), table, given)


def _print(name: str, parameters: dict[str, str], resource: str, given: dict[str, Any]) -> None:
    """Sign the parameters and print them, as the query of the resource's URL or as the whole URL."""
    # --https-only is also an option of the server, where it means something else.
    server = {key: value for key, value in given.items() if key != "https_only"}
    configuration = read_configuration(server, os.environ)
    for parameter, value in parameters.items():
        if "\n" in value or not value:
            raise BrokenOption(f"The value of {parameter} must be one line, and not empty.")
    keys = keys_of(configuration, name)
    number = int(given["number"])
    if number > len(keys):
        raise BrokenOption(f"The account {name} has no key {number}.")
    signed = signed_sas(name, keys[number - 1], parameters)
    query = urlencode(signed, quote_via=quote, safe="")
    print(f"{endpoint_of(configuration, name)}/{resource}?{query}" if given["as_url"] else query)


def _validity(given: dict[str, Any], *, needs_expiry: bool) -> dict[str, str]:
    """The parameters that limit when and from where the signature is valid."""
    if given["expiry"] is None and needs_expiry:
        raise BrokenOption("--expiry is missing: give a time, or 30m, 12h or 7d.")
    start, end = _instant("--start", given["start"]), _instant("--expiry", given["expiry"])
    if start is not None and end is not None and parse_instant(start) >= parse_instant(end):
        raise BrokenOption(f"--expiry {end} is not after --start {start}.")
    if end is not None and parse_instant(end) <= system_clock():
        print(f"tablestone: --expiry {end} has passed: no server accepts it.", file=sys.stderr)
    addresses = given["ip"]
    if addresses is not None and not is_client_addresses(addresses):
        raise BrokenOption(
            f"--ip must be an address, or two with a hyphen between, the lower one first, not {addresses!r}."
        )
    parameters = {
        "st": start,
        "se": end,
        "sip": addresses,
        "spr": "https" if given["https_only"] else None,
    }
    return {name: value for name, value in parameters.items() if value is not None}


def _instant(flag: str, text: str | None) -> str | None:
    """The time as it is signed; a duration counts from now."""
    if text is None:
        return None
    after = end_after(text, system_clock())
    if after is not None:
        return after
    try:
        parse_instant(text)
    except ValueError:
        raise BrokenOption(
            f"{flag} must be a time such as 2030-01-31T12:00:00Z, or 30m, 12h or 7d, not {text!r}."
        ) from None
    return text


def _letters(flag: str, given: str, known: Iterable[str]) -> str:
    """The letters in the order in which they are known."""
    if not given or not set(given) <= set(known):
        raise BrokenOption(f"{flag} must be some of the letters {''.join(known)}, not {given!r}.")
    return "".join(letter for letter in known if letter in given)


def _version(given: dict[str, Any], version_min: str) -> str:
    version = str(given["service_version"])
    if version not in VERSIONS or version < version_min:
        raise BrokenOption(
            f"--service-version must be a known version of the service, from {version_min} to {max(VERSIONS)}, "
            f"not {version!r}."
        )
    return version
