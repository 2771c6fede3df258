"""The explorer beside a server, on its admin address: `tablestone serve --explorer`.

It is a client as `tablestone explore` is, so it signs its requests with a key of the account that is shown: one of
those that the server has when it starts. Its packages are an extra, and are imported by the process of the admin
address alone. Knows the configuration and the explorer.
"""

from __future__ import annotations

import logging
import os
import secrets
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tablestone.cli.option_values import BrokenOption
from tablestone.cli.options import EXPLORER
from tablestone.cli.stored_data import connection_string, keys_of_all
from tablestone.configuration import (
    EXPLORER_READ_ONLY,
    AccountKeys,
    CertificateFiles,
    Configuration,
    SelfSigned,
)
from tablestone.server.start import Mounts
from tablestone.server.worker import StartRefused

PATH: Final = "/explorer/"
TOKEN_BYTES: Final = 24
CLIENT_LOGGERS: Final = ("azure", "urllib3")
"""The loggers of the official SDK: each request would be a line with the keys of the entity in its URL."""
PACKAGES: Final = ("starlette", "jinja2", "python_multipart", "azure.data.tables")


class ServedExplorer:
    """The explorer of one server. `StartRefused` and `BrokenOption` say why there can be none."""

    def __init__(self, configuration: Configuration, accounts: list[AccountKeys]) -> None:
        _require_packages()
        keys = keys_of_all(configuration, [each.name for each in accounts])
        if not keys:
            raise BrokenOption(
                f"{EXPLORER.flag} shows the accounts of the server, and there is none: "
                "tablestone account create makes one."
            )
        self._keys = {name: each[0] for name, each in keys.items()}
        self._tls = configuration.tls
        self._read_only = configuration.explorer == EXPLORER_READ_ONLY
        self._token = secrets.token_urlsafe(TOKEN_BYTES)

    def address(self, admin: str) -> str:
        """The address that a person opens, with the token."""
        return f"{admin}{PATH}?token={self._token}"

    def mounts(self, address: str, admin: str) -> Mounts:
        """The application, in the process of the admin address."""
        import platformdirs  # noqa: PLC0415 - only this process needs it

        from tablestone.explorer.account import ExplorerSettings  # noqa: PLC0415 - an extra
        from tablestone.explorer.application import create_explorer_of_accounts  # noqa: PLC0415 - an extra
        from tablestone.explorer.grid_query import FILE_NAME  # noqa: PLC0415 - an extra
        from tablestone.tools.connection import parse_connection_string  # noqa: PLC0415
        from tablestone.tools.profiles import DIRECTORY_VARIABLE  # noqa: PLC0415 - as above

        if isinstance(self._tls, CertificateFiles | SelfSigned):
            files = self._tls.files if isinstance(self._tls, SelfSigned) else self._tls
            # The data tools find the certificates that they trust in the environment, here of this process alone.
            os.environ["REQUESTS_CA_BUNDLE"] = str(files.certificate)
        for name in CLIENT_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        directory = os.environ.get(DIRECTORY_VARIABLE) or platformdirs.user_config_dir("tablestone")
        settings = [
            ExplorerSettings(
                parse_connection_string(connection_string(name, key, f"{address}/{name}")),
                read_only=self._read_only,
                admin_url=admin,
                saved_queries=Path(directory) / FILE_NAME,
            )
            for name, key in self._keys.items()
        ]
        return {PATH: create_explorer_of_accounts(settings, self._token)}


def _require_packages() -> None:
    for name in PACKAGES:
        if not _is_there(name):
            raise StartRefused(
                f"{EXPLORER.flag} needs {name}: install Tablestone with its extra 'explorer'."
            )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
