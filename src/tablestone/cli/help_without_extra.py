"""The help of a command whose packages are not installed.

The module of a command imports its packages, but of these its options need nothing, and only classes are named while it
is imported. So names stand in for the packages until the help is printed, and the command refuses to do anything else.
Knows modules and commands; knows no package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, NoReturn

import click

from tablestone.tools.refusals import TransferRefused

HELP: Final = frozenset(("-h", "--help"))


class _Named(type):
    """The type of a class that is only named: a base, a part of an annotation, or an exception."""

    def __getitem__(cls, _parameters: object) -> type:
        return cls


class _StandIn(ModuleType):
    """A module that has every name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {})


class _Finder(MetaPathFinder, Loader):
    """Finds stand-ins for the packages that were missed, and for all modules in them."""

    def __init__(self) -> None:
        self.missed: set[str] = set()

    def find_spec(self, fullname: str, _path: Any, _target: Any = None) -> ModuleSpec | None:
        is_missed = any(f"{fullname}.".startswith(f"{name}.") for name in self.missed)
        return ModuleSpec(fullname, self, is_package=True) if is_missed else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """A stand-in runs nothing."""


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether a command line with these arguments prints a help."""
    return not HELP.isdisjoint(arguments)


def loaded_for_help(
    load: Callable[[], click.Command], own_package: str, refusal: str
) -> click.Command:
    """The command that `load` imports, for its help alone: it refuses to run, with this sentence."""
    with _stand_ins() as finder:
        while True:
            try:
                command = load()
            except ModuleNotFoundError as error:
                name = error.name or ""
                if name.partition(".")[0] in ("", own_package) or name in finder.missed:
                    raise
                finder.missed.add(name)
            else:
                _refuse_to_run(command, refusal)
                return command


@contextmanager
def _stand_ins() -> Iterator[_Finder]:
    finder = _Finder()
    sys.meta_path.append(finder)
    try:
        yield finder
    finally:
        sys.meta_path.remove(finder)


def _refuse_to_run(command: click.Command, refusal: str) -> None:
    def refuse(**_given: Any) -> NoReturn:
        raise TransferRefused(refusal)

    command.callback = refuse
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _refuse_to_run(inner, refusal)
