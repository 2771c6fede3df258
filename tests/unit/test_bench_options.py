"""The options of the bench, and the sentences with which it refuses them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from bench import filter_in_sql, in_process, middle
from bench.__main__ import arguments


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("--rounds 0", "a whole number from 1 on is needed, not '0'"),
        ("--rounds many", "a whole number from 1 on is needed, not 'many'"),
        ("--connections 0", "a whole number from 1 on is needed, not '0'"),
        ("--sizes 100,0", "a whole number from 1 on is needed, not '0'"),
        ("--seconds 0", "seconds are a number above 0, not '0'"),
        ("--seconds nan", "seconds are a number above 0, not 'nan'"),
        ("--seconds inf", "seconds are a number above 0, not 'inf'"),
        ("--seconds soon", "seconds are a number above 0, not 'soon'"),
        ("--warmup -1", "seconds are a number, 0 or more, not '-1'"),
        ("--servers tablestone:0", "no such server: tablestone:0"),
        ("--servers azurite:2", "no such server: azurite:2"),
        ("--servers floor,floor", "a server is named twice: floor,floor"),
        ("no-such-load", "no such workload: no-such-load"),
    ],
)
def test_nonsense_is_refused_before_anything_starts(
    given: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        arguments(given.split())
    assert refused.value.code == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


def test_a_warmup_may_be_none() -> None:
    assert arguments(["--warmup", "0"]).warmup == 0


@pytest.mark.parametrize("script", [in_process, filter_in_sql])
def test_help_measures_nothing(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["anything", "--help"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 0
    assert "--rounds" in capsys.readouterr().out


def test_without_pyperf_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyperf", None)
    with pytest.raises(SystemExit) as refused:
        middle.main()
    assert refused.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_a_name_every_row_with_a_floor_is_measured() -> None:
    """One command prints the whole table of the README of the bench."""
    assert arguments([]).workloads == ["floors"]
    assert arguments(["insert"]).workloads == ["insert"]
