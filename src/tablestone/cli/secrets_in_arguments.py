"""Keys and signatures on the command line: hides them from the process list as soon as the program runs.

Every user of a machine can read the arguments of all processes. A secret in a file (`@FILE`), a profile or the
environment is never visible; this module is for secrets that are typed all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SECRET: Final = re.compile(
    r"((?:AccountKey|SharedAccessSignature|--pwd)=)[^;]*|([?&]?\bsig=)[^&;]*", re.IGNORECASE
)
_HIDDEN: Final = "(hidden)"
_SECRET_FLAGS: Final = {"--sas", "--pwd"}


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """The arguments with every key and signature replaced."""
    shown = []
    for index, argument in enumerate(arguments):
        if index and arguments[index - 1] in _SECRET_FLAGS and not argument.startswith("@"):
            shown.append(_HIDDEN)
        else:
            shown.append(_SECRET.sub(lambda found: (found[1] or found[2]) + _HIDDEN, argument))
    return shown


def hide_secrets(program: Sequence[str], arguments: Sequence[str]) -> None:
    """Show the process without its secrets; does nothing if there are none."""
    shown = without_secrets(arguments)
    if shown == list(arguments):
        return
    try:
        from setproctitle import setproctitle  # noqa: PLC0415 - needed by those arguments only
    except ImportError:
        return  # the command that takes them needs the same extra, and will say so
    setproctitle(" ".join([*program, *shown]))
