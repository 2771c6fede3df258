"""`tablestone token`: issue a bearer token with the server's own key, to try code that uses tokens."""

from dataclasses import replace
from typing import Any, Final

import click

from tablestone.auth.roles import DATA_CONTRIBUTOR, ROLES, Role, find_role
from tablestone.cli.options import DATA_OPTIONS, TOKEN_TENANT, BrokenOption, with_options
from tablestone.cli.stored_data import stored_configuration, with_engine
from tablestone.clock import system_clock
from tablestone.engines.contract import Engine
from tablestone.tables.metadata import OWN_KEY, DocumentKind, Documents, Members

DEVELOPER: Final = "7ab1e570-0000-4000-8000-000000000001"
"""The object id of the holder if no principal is named."""
AUDIENCE: Final = "https://storage.azure.com"
LIFETIME_SECONDS: Final = 3600
LIFETIME_SECONDS_MAX: Final = 24 * 60 * 60


class _Seconds(click.IntRange):
    name = "number"


@click.command()
@click.option(
    "--principal",
    metavar="ID",
    help="Object id of the holder, as in `tablestone role assign`.  [default: a developer's]",
)
@click.option(
    "--role",
    "roles",
    metavar="ROLE",
    multiple=True,
    help="Role that the token claims, by name or id; repeat for more.  [default: none with --principal, else Storage "
    "Table Data Contributor]",
)
@click.option(
    "--audience", metavar="AUDIENCE", default=AUDIENCE, help="Audience of the token (aud)."
)
@click.option(
    "--lifetime",
    metavar="SECONDS",
    type=_Seconds(1, LIFETIME_SECONDS_MAX),
    default=LIFETIME_SECONDS,
    help=f"Seconds for which the token is valid; at most {LIFETIME_SECONDS_MAX}.",
)
@with_options((*DATA_OPTIONS, replace(TOKEN_TENANT, help="Tenant in the token (tid).")))
def token(
    principal: str | None, roles: tuple[str, ...], audience: str, lifetime: int, **given: Any
) -> None:
    """Print a bearer token that this server accepts.

    It is signed with the server's own key, which is created at first use and stored with the data.
    Servers accept bearer tokens over TLS only, and SDKs send them over TLS only.
    """
    from tablestone.auth.bearer_tokens import issue_token  # noqa: PLC0415 - cryptography loads slowly

    configuration = stored_configuration(given, "The key that signs tokens")
    for flag, text in (("--audience", audience), ("--principal", principal)):
        if text == "":
            raise BrokenOption(f"{flag} must not be empty.")
    claimed = [required_role("--role", name).name for name in roles]
    if principal is None and not roles:
        claimed = [DATA_CONTRIBUTOR.name]
    own_key = with_engine(configuration, _own_key)
    print(
        issue_token(
            own_key,
            principal=principal or DEVELOPER,
            roles=claimed,
            tenant=configuration.tokens.tenant,
            audience=audience,
            lifetime_seconds=lifetime,
            now=system_clock(),
        )
    )


def required_role(source: str, text: str) -> Role:
    """The role of this name or id; `BrokenOption` if there is none."""
    role = find_role(text)
    if role is None:
        names = ", ".join(each.name for each in ROLES)
        raise BrokenOption(f"{source} names no role: {text!r}; the roles are {names}.")
    return role


async def _own_key(engine: Engine) -> Members:
    from tablestone.auth.bearer_tokens import make_issuer  # noqa: PLC0415 - as above

    documents = Documents(engine)
    stored = await documents.get(DocumentKind.SECRETS, OWN_KEY, dict)
    if stored is None:
        fresh = make_issuer()
        await documents.change(DocumentKind.SECRETS, OWN_KEY, lambda members: members or fresh)
        # Another process may have been first.
        stored = await documents.get(DocumentKind.SECRETS, OWN_KEY, dict)
        assert stored is not None
    return stored
