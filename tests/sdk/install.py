"""Installs the packages of the SDK tests: `python tests/sdk/install.py [python] [javascript] [go] [java] [legacy]`.

Without arguments it prepares every language whose tools are on the path; a language that is named must succeed. The
language's own `prepare.py` does the work. The script imports nothing of this project.
"""

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Protocol, cast

LANGUAGES = ("python", "javascript", "go", "java")
CLIENTS = (*LANGUAGES, "legacy")
"""The SDKs that can be installed: the current one of each language, and unmaintained ones (`legacy/`)."""


class Language(Protocol):
    """The interface of `tests/sdk/<language>/prepare.py`."""

    def prepare(self) -> None:
        """Fetch and build the packages of the language's tests; raises if it cannot."""

    def missing(self) -> str | None:
        """Why its tests cannot run now, or None."""

    def interchange(self) -> list[str]:
        """The argument vector of its interchange program."""


def language(name: str) -> Language:
    """The `prepare` module of one language; raises FileNotFoundError if there is none."""
    path = Path(__file__).parent / name / "prepare.py"
    spec = importlib.util.spec_from_file_location(f"sdk_prepare_{name}", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Language", module)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Install what the SDK tests need.")
    parser.add_argument("languages", nargs="*", choices=[[], *CLIENTS], metavar="|".join(CLIENTS))
    named: list[str] = parser.parse_args(arguments).languages
    failed = False
    for name in named or CLIENTS:
        try:
            language(name).prepare()
        except Exception as error:  # noqa: BLE001 - one language's failure must not hide the next one's
            # A language that was not named may lack its tools: its tests then skip with the same reason.
            failed = failed or bool(named)
            print(f"{name}: not prepared: {error}", file=sys.stderr)
        else:
            reason = language(name).missing()
            failed = failed or (reason is not None)
            print(f"{name}: {reason or 'ready'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
