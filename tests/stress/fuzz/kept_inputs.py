"""The inputs that are kept in the project: one file for each parser, or for requests, and in it one input a line.

`corpus/NAME.txt` has inputs that reach different parts of the code, `crashes/NAME.txt` those that once led to an
error which was none of the server's own. A line is a bytes literal of Python, so that a change of it can be read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PLACE: Final = Path(__file__).parent
CORPUS: Final = PLACE / "corpus"
CRASHES: Final = PLACE / "crashes"
KEPT_MAX: Final = 200
"""Inputs of a corpus at most, and `KEPT_BYTES_MAX` bytes of all of them: it is replayed with every change."""
KEPT_BYTES_MAX: Final = 40_000


def read(directory: Path, name: str) -> list[bytes]:
    """The inputs of a file; none if there is no such file."""
    file = directory / f"{name}.txt"
    if not file.exists():
        return []
    lines = file.read_text(encoding="ascii").splitlines()
    return [bytes(ast.literal_eval(line)) for line in lines if line]


def kept(name: str) -> list[bytes]:
    """All inputs that are kept for a parser."""
    return read(CRASHES, name) + read(CORPUS, name)


def write(directory: Path, name: str, inputs: Iterable[bytes]) -> None:
    """Replace the inputs of a file: the shortest of these, in order."""
    chosen: list[bytes] = []
    size = 0
    for content in sorted(set(inputs), key=lambda each: (len(each), each)):
        size += len(content)
        if len(chosen) == KEPT_MAX or size > KEPT_BYTES_MAX:
            break
        chosen.append(content)
    directory.mkdir(exist_ok=True)
    lines = "".join(f"{content!r}\n" for content in sorted(chosen))
    (directory / f"{name}.txt").write_text(lines, encoding="ascii")


def add_crash(name: str, content: bytes) -> None:
    """Keep an input that led to an error."""
    write(CRASHES, name, [*read(CRASHES, name), content])
