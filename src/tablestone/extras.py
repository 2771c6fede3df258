"""The sentence for a user who lacks an optional package. Imports nothing of ours, so every package may use it."""

import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

IS_FROZEN = getattr(sys, "frozen", False)
"""Whether PyInstaller built this program, which brings its own Python: docs/decisions/0028-folder.md."""


def needs(what: str, package: str, extra: str) -> str:
    """`what` needs `package`, and the command that installs its extra; a build without Python has no such command."""
    if IS_FROZEN:
        return f"{what} needs {package}, which this build leaves out: install the Python package with its extra {extra}"
    return f"{what} needs {package}: {pip_install(extra)}"


def pip_install(extras: str) -> str:
    """The command that adds extras, by path if that still exists: on an index, somebody else may have the name."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - loads slowly

    text = None
    with suppress(PackageNotFoundError):
        text = distribution("tablestone").read_text("direct_url.json")
    origin = json.loads(text or "{}")
    path = unquote(urlsplit(origin.get("url", "")).path)
    if not path or not Path(path).exists():
        path, origin = "/path/to/tablestone", {}
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}{shlex.quote(f'{path}[{extras}]')}"
