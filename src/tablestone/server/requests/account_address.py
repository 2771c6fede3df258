"""The account that a request is for: named by its host, or by the first segment of its path (wire 1.1, auth 6).

Both styles are served on one port. If the host names an account, the path is not looked at, because a table may have
the name of another account. The client still has to sign for the account that is found here.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tablestone.accounts.known_accounts import KnownAccounts
from tablestone.auth.account import Account
from tablestone.configuration import LOCAL_DOMAIN
from tablestone.model.errors import StorageError
from tablestone.tables.cached_rows import NOT_KEPT
from tablestone.wire.address import Host, normalized_host, parse_host, split_account

_SECONDARY = "-secondary"


class FoundAccount(NamedTuple):
    """The account of a URL, and its path as on the wire: `prefix` (`ACCOUNT/`, empty in host style) and `resource`."""

    account: Account
    prefix: str
    resource: bytes
    is_secondary: bool
    """Whether the URL is that of the read-only secondary."""


class Addresses:
    """A host `ACCOUNT.table.DOMAIN` names an account; `custom_domains` maps hosts to `ACCOUNT[-secondary]`."""

    def __init__(
        self,
        accounts: KnownAccounts,
        domains: Iterable[str] = (),
        custom_domains: Mapping[str, str] | None = None,
    ) -> None:
        self._accounts = accounts
        self._domains = frozenset((LOCAL_DOMAIN, *map(normalized_host, domains)))
        self._custom_domains = {
            normalized_host(host): account for host, account in (custom_domains or {}).items()
        }

    async def find(self, raw_path: bytes, raw_host: bytes) -> FoundAccount:
        """The account that a request is for, or `ResourceNotFound`.

        A host below a known domain decides alone. Another host may have an account as its first label too. Then a path
        that names an account comes first, unless the label `table` follows the account.
        """
        host = parse_host(raw_host)
        if not host.suffix and host.name not in self._custom_domains:  # path style, as a rule
            name, resource = split_account(raw_path)
            account = self._accounts.kept(name)
            if account is not NOT_KEPT and account is not None:
                return FoundAccount(account, name + "/", resource, is_secondary=False)
        return await self._find(host, raw_path)

    async def _find(self, host: Host, raw_path: bytes) -> FoundAccount:
        found: FoundAccount | None
        if host.name in self._custom_domains:
            found = await self._at_host(self._custom_domains[host.name], raw_path)
        elif host.suffix and (named := await self._at_host(host.label, raw_path)) is not None:
            return named
        elif host.suffix in self._domains:
            found = None
        else:
            found = await self._in_path(raw_path)
            if found is None and host.label:
                found = await self._at_host(host.label, raw_path)
        if found is None:
            # Leave out what follows a question mark that the client encoded: it may be a signature.
            name = split_account(raw_path)[0].partition("%")[0].partition("?")[0][:64]
            name = host.label[:64] if host.suffix in self._domains else name
            detail = f"{name!r}, at the host {host.name[:64]!r}"
            raise StorageError("ResourceNotFound", reason="no such account", detail=detail)
        return found

    async def _at_host(self, name: str, raw_path: bytes) -> FoundAccount | None:
        is_secondary = name.endswith(_SECONDARY)
        name = name.removesuffix(_SECONDARY)
        account = self._accounts.kept(name)
        if account is NOT_KEPT:
            account = await self._accounts.find(name)
        if account is None:
            return None
        return FoundAccount(account, "", raw_path[1:], is_secondary)

    async def _in_path(self, raw_path: bytes) -> FoundAccount | None:
        name, resource = split_account(raw_path)
        account = await self._accounts.find(name)
        if account is not None:
            return FoundAccount(account, name + "/", resource, is_secondary=False)
        if not name.endswith(_SECONDARY):
            return None
        account = await self._accounts.find(name.removesuffix(_SECONDARY))
        if account is None:
            return None
        # One SDK keeps the account in the path when it addresses the secondary (auth 1.5).
        resource = resource.removeprefix(account.name_bytes + b"/")
        return FoundAccount(account, name + "/", resource, is_secondary=True)
