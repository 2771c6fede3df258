"""The parsers raise only their own errors, whatever they are given: kept inputs, and random changes of them.

The long form, with coverage guidance, is `python -m tests.stress.fuzz parsers --inputs 10000000`.
"""

import os
from pathlib import Path
from random import Random

import pytest

from stress.fuzz import kept_inputs, parser_runs
from stress.fuzz.covered import fewest
from stress.fuzz.parser import Parser, call
from stress.fuzz.parsers import PARSERS
from stress.fuzz.resources import of_this_process
from stress.fuzz.unguided import findings
from tablestone.cli.main import HOW_IT_RUNS
from tablestone.model import edm

SEED = 20261122
INPUTS = 14_000
"""For all parsers together."""


@pytest.mark.parametrize("name", PARSERS)
def test_only_the_parsers_own_errors(name: str) -> None:
    kept = kept_inputs.kept(name)
    found = findings(PARSERS[name], kept, INPUTS // len(PARSERS), Random(f"{SEED} {name}"))
    assert [each.error for each in found] == []


@pytest.mark.parametrize("name", PARSERS)
def test_an_input_is_accepted(name: str) -> None:
    """A parser that refuses everything would not be tested. Signatures of unknown accounts are never accepted."""
    parser = PARSERS[name]
    accepted = any(call(parser, content) for content in parser.seeds)
    assert accepted or name == "token-of-a-user"


@pytest.mark.parametrize("directory", ["corpus", "crashes"])
def test_every_kept_input_belongs_to_a_parser_or_to_requests(directory: str) -> None:
    names = {file.stem for file in (kept_inputs.PLACE / directory).glob("*")}
    assert names <= {*PARSERS, "requests"}


def guid_by_index(text: str) -> str:
    """Plants a bug: a text that is too short raises Python's own error."""
    assert text[35] in "0123456789abcdefABCDEF" or edm.parse_guid(text)
    return edm.parse_guid(text)


def test_an_error_of_python_is_found() -> None:
    guid = PARSERS["guid"]._replace(parse=lambda content: guid_by_index(content.decode("latin-1")))
    found = next(findings(guid, [], 1000, Random(SEED)))
    assert "IndexError" in found.error


def test_a_descriptor_and_memory_that_are_kept_are_found() -> None:
    lost: list[object] = []
    early = of_this_process()

    def leak(_content: bytes) -> None:
        lost.append(os.open(os.devnull, os.O_RDONLY))
        lost.append(b"x" * 2 * 1024 * 1024)

    list(findings(Parser(leak, (b"",)), [], 100, Random(SEED)))
    found = list(parser_runs.leaks("parser", early, of_this_process()))
    for descriptor in lost[::2]:
        os.close(int(str(descriptor)))
    assert len(found) == 2
    assert "101 descriptors were left open" in found[0]


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    inputs = [b"", b"\n\r", b"\xff'\"\\", "é".encode()]
    kept_inputs.write(tmp_path, "parser", inputs)
    assert kept_inputs.read(tmp_path, "parser") == sorted(inputs)
    kept_inputs.write(tmp_path, "parser", [b"x" * kept_inputs.KEPT_BYTES_MAX, b"y"])
    assert kept_inputs.read(tmp_path, "parser") == [b"y"], "the shortest first"


@pytest.mark.skipif(HOW_IT_RUNS == "compiled", reason="lines are seen of the source only")
def test_the_fewest_inputs_reach_all_lines() -> None:
    """Of two inputs that do the same, the shorter one."""
    integer = PARSERS["integer"]
    assert fewest(integer, [b"12", b"1", b"x", b"y1"]) == [b"1", b"x"]


def test_progress_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    parser_runs.Progress(file).add("guid", 5)
    parser_runs.Progress(file).add("guid", 6)
    assert parser_runs.Progress(file).total == 11
