"""The sentence about a package of an extra that is not installed. Imports nothing of ours."""

import json
import shlex
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


def needs(what: str, package: str, extra: str) -> str:
    """What is missing for what, and the command that installs it."""
    return f"{what} needs {package}: {pip_install(extra)}"


def pip_install(extras: str) -> str:
    """The command that adds extras to this installation, from where it came: the name on an index may be another's."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - loads slowly

    options, place = "", "tablestone"
    try:
        origin = json.loads(distribution("tablestone").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    path = url2pathname(urlsplit(origin.get("url", "")).path)
    if path and Path(path).exists():
        place = path
        options = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {options}{shlex.quote(f'{place}[{extras}]')}"
