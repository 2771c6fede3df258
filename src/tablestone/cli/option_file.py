"""The configuration file, and the step from a given text to a value, with a sentence that names the source.

Knows TOML and the forms of options in the file. Does not know which source wins.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from tablestone.cli.option_values import (
    NO_ACCOUNT,
    BrokenOption,
    checked_account,
    parse_admin,
    parse_any_version,
    parse_control_port,
    parse_deletion_seconds,
    parse_explorer,
    parse_limit,
    parse_port,
    parse_truth,
    parse_workers,
)
from tablestone.cli.options import (
    ACCESS_LOG,
    ACCOUNT,
    DATA,
    ENCRYPTION_KEY_FILE,
    ENGINE,
    SERVER_OPTIONS,
    TLS_CERTIFICATE,
    TLS_KEY,
    TOKEN_ISSUER,
    Option,
)
from tablestone.configuration import EXPLORER_READ_ONLY, AccountKeys, TrustedIssuer
from tablestone.engines.capabilities import StoredIn
from tablestone.engines.engine_url import EngineUrl
from tablestone.engines.registry import capabilities_of
from tablestone.telemetry.logs import LOG_FORMATS
from tablestone.wire.versions import UnknownVersions

ACCOUNTS_KEY = "accounts"
"""The file's table of accounts, NAME = "KEY" or NAME = ["KEY1", "KEY2"], in place of repeated --account options."""


def read_option_file(path: Path) -> dict[str, Any]:
    """The file's options as values, by option name."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BrokenOption(
            f"The configuration file {path} cannot be read: {error.strerror}."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BrokenOption(f"The configuration file {path} is not TOML: {error}.") from None
    by_key = {option.name: option for option in SERVER_OPTIONS if option is not ACCOUNT}
    values: dict[str, Any] = {}
    for key, value in document.items():
        source = f"{key} in {path}"
        if key == ACCOUNTS_KEY:
            values[ACCOUNT.name] = _file_accounts(value, source)
        elif key in by_key:
            values[key] = _beside(path, key, _file_value(by_key[key], value, source))
        else:
            raise BrokenOption(
                f"{path} has the unknown key {key!r}{_instead((*by_key, ACCOUNTS_KEY), key)}"
            )
    return values


def _instead(keys: tuple[str, ...], unknown: str) -> str:
    """The key that the person probably meant; without such a key, all keys."""
    near = get_close_matches(unknown, keys, n=1)
    return f": did you mean {near[0]}?" if near else f"; the keys are {', '.join(sorted(keys))}."


def _file_value(option: Option, value: object, source: str) -> Any:
    if option.repeatable and isinstance(value, list) and all(type(one) is str for one in value):
        return parsed(option, tuple(value), source)
    form = file_form(option)
    if type(value) not in form.kinds:
        raise BrokenOption(f"{source} must be {form.words}.")
    return parsed(option, (str(value),), source)


class FileForm(NamedTuple):
    """The form of an option in the file: the types of its TOML value, and the words for messages and documents."""

    kinds: tuple[type, ...]
    words: str


TEXT_FORM: Final = FileForm((str,), "a string")
LIST_FORM: Final = FileForm((str,), "a string or a list of strings")
NUMBER_FORM: Final = FileForm((int,), "a number")
TRUTH_FORM: Final = FileForm((bool,), "true or false")
ADDRESS_FORM: Final = FileForm((int, str), "a number or a string")
EXPLORER_FORM: Final = FileForm((bool, str), f"true, false or {EXPLORER_READ_ONLY!r}")
ANY_VERSION_FORM: Final = FileForm((bool, str), f"true, false or {UnknownVersions.LATER.value!r}")
_FORMS: Final[Mapping[Callable[[str], Any], FileForm]] = {
    parse_port: NUMBER_FORM,
    parse_workers: NUMBER_FORM,
    parse_control_port: NUMBER_FORM,
    parse_deletion_seconds: NUMBER_FORM,
    parse_limit: NUMBER_FORM,
    parse_truth: TRUTH_FORM,
    parse_admin: ADDRESS_FORM,
    parse_explorer: EXPLORER_FORM,
    parse_any_version: ANY_VERSION_FORM,
}
"""The forms by the function that reads the text of an option; all other options are strings."""


def file_form(option: Option) -> FileForm:
    """The form of an option in the file."""
    return LIST_FORM if option.repeatable else _FORMS.get(option.parse, TEXT_FORM)


def _beside(path: Path, key: str, value: Any) -> Any:
    """A value of the file with its paths resolved from the file's directory: the same in every working directory."""
    if key == DATA.name:
        return str(path_from(value, path.absolute().parent, "data directory"))
    if key == ACCESS_LOG.name and value in LOG_FORMATS:
        return value
    if key in {TLS_CERTIFICATE.name, TLS_KEY.name, ACCESS_LOG.name, ENCRYPTION_KEY_FILE.name}:
        return str(path_from(value, path.absolute().parent))
    if key == TOKEN_ISSUER.name:
        return tuple(_issuer_beside(path, issuer) for issuer in value)
    if key == ENGINE.name:
        scheme, place = EngineUrl.parse(value)
        if place and capabilities_of(value).stored_in is StoredIn.DIRECTORY:
            return str(EngineUrl(scheme, _beside(path, DATA.name, place)))
    return value


def _issuer_beside(path: Path, issuer: TrustedIssuer) -> TrustedIssuer:
    if issuer.keys_file is None:
        return issuer
    return replace(issuer, keys=_beside(path, TLS_KEY.name, str(issuer.keys_file)))


def _file_accounts(table: object, source: str) -> tuple[AccountKeys, ...]:
    if table == NO_ACCOUNT:
        return ()
    if not isinstance(table, dict):
        raise BrokenOption(f'{source} must be a table of NAME = "KEY" or NAME = ["KEY1", "KEY2"].')
    try:
        accounts = tuple(
            checked_account(str(name), _keys(keys), '["KEY1", "KEY2"]')
            for name, keys in table.items()
        )
        _require_some(accounts)
    except BrokenOption as broken:
        raise BrokenOption(f"{source} {broken}.") from None
    return accounts


def _keys(keys: object) -> list[str]:
    if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
        return keys
    return [keys] if isinstance(keys, str) else []


def parsed(option: Option, texts: tuple[str, ...], source: str) -> Any:
    """The value of an option that is given as text; the sentence of a failure starts with the source."""
    if option is ACCOUNT and texts == (NO_ACCOUNT,):
        return ()
    try:
        values = tuple(option.parse(text) for text in texts)
        if option is ACCOUNT:
            _require_some(values)
        _require_distinct(option, values)
    except BrokenOption as broken:
        raise BrokenOption(f"{source} {broken}.") from None
    return values if option.repeatable else values[0]


def _require_some(accounts: tuple[AccountKeys, ...]) -> None:
    if not accounts:
        raise BrokenOption("names no account")


def _require_distinct(option: Option, values: tuple[Any, ...]) -> None:
    if option.once is None:
        return
    what, name_of = option.once
    names = [name_of(value) for value in values]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BrokenOption(f"names the {what} {twice} twice")


def path_from(text: str, seen_from: Path, what: str = "file") -> Path:
    try:
        path = seen_from / Path(text).expanduser()
    except RuntimeError:
        raise BrokenOption(
            f"The {what} {text} cannot be found: there is no such home directory."
        ) from None
    require_utf8(path, what)
    return path


def require_utf8(path: Path, what: str) -> None:
    """Refuse a path with other bytes: SQLite opens no such file, and no message could name it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise BrokenOption(f"The path of the {what} must be UTF-8, and {shown} is not.") from None
