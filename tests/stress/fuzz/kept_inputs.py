"""The inputs that the project keeps: one file for each parser, or for requests, with one input per line.

`corpus/NAME.txt` has inputs that reach different parts of the code, `crashes/NAME.txt` those that once led to an
unexpected error. A line is a Python bytes literal, so that a diff can be read.
"""

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PLACE: Final = Path(__file__).parent
CORPUS: Final = PLACE / "corpus"
CRASHES: Final = PLACE / "crashes"
KEPT_MAX: Final = 200
"""The most inputs in a corpus; `KEPT_BYTES_MAX` limits their bytes. Every change replays it."""
KEPT_BYTES_MAX: Final = 40_000


def read(directory: Path, name: str) -> list[bytes]:
    """The inputs in a file; none if it does not exist."""
    file = directory / f"{name}.txt"
    if not file.exists():
        return []
    lines = file.read_text(encoding="ascii").splitlines()
    return [bytes(ast.literal_eval(line)) for line in lines if line]


def kept(name: str) -> list[bytes]:
    """All inputs kept for a parser."""
    return read(CRASHES, name) + read(CORPUS, name)


def write(directory: Path, name: str, inputs: Iterable[bytes]) -> None:
    """Replace the inputs in a file with the shortest of these, in order."""
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
