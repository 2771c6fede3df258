"""The key of an encrypted data directory, from a file or from the environment; never from the command line.

Other users can read a command line, but not a file with mode 0600. Knows the two sources; does not know what the key
opens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tablestone.cli.option_file import path_from
from tablestone.cli.option_values import BrokenOption
from tablestone.engines.encryption_key import FORM, EncryptionKey

KEY_FILE_LENGTH_MAX: Final = 1024
"""Characters of a key file that are read: a device may be endless."""
KEY_VARIABLE: Final = "TABLESTONE_ENCRYPTION_KEY"
"""The variable with the key itself. A file is better: programs pass their variables on, and print them in reports."""


def encryption_key(
    file: str | None, file_source: str, environment: Mapping[str, str]
) -> EncryptionKey | None:
    """The key, if one is given; `BrokenOption` if two are, or one that cannot be read.

    `file_source` is the option or the variable that names the file.
    """
    text = environment.get(KEY_VARIABLE)
    if file is None:
        return _parsed(text, KEY_VARIABLE) if text else None
    if text:
        raise BrokenOption(
            f"Both {file_source} and {KEY_VARIABLE} give an encryption key: give one of them."
        )
    return key_in_file(file)


def key_of_directory(given: str | None) -> EncryptionKey | None:
    """The key of a directory that is no option of the command; `given` is the file that the command line names."""
    file = given or os.environ.get(f"{KEY_VARIABLE}_FILE") or None
    source = "--encryption-key-file" if given else f"{KEY_VARIABLE}_FILE"
    return encryption_key(file, source, os.environ)


def key_in_file(name: str) -> EncryptionKey:
    """The key in a text file; `BrokenOption` if there is none."""
    path = path_from(name, Path.cwd())
    try:
        # A FIFO without a writer is empty then, and is not waited for; a pipe of the shell can be read.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="ascii") as file:
            os.set_blocking(descriptor, True)
            text = file.read(KEY_FILE_LENGTH_MAX)
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        raise BrokenOption(
            f"The encryption key file {path} cannot be read: {error.strerror}."
        ) from None
    return _parsed(text, f"The encryption key file {path}")


def _parsed(text: str, source: str) -> EncryptionKey:
    try:
        return EncryptionKey.parse(text)
    except ValueError:
        raise BrokenOption(f"{source} has no key: it must be {FORM}.") from None
