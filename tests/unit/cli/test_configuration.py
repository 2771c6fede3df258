"""The options of the server, from command line, environment and file: the rows of options.toml.

Which source wins, the values, and the text of every refusal.
"""

import re
import tomllib
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import reduce
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from tablestone.cli.option_sources import read_configuration, where
from tablestone.cli.options import SERVER_OPTIONS, BrokenOption
from tablestone.configuration import AccountKeys, Configuration

KEY = "a2V5IG9uZQ=="
_TOPICS = tomllib.loads((Path(__file__).parent / "options.toml").read_text("utf-8"))
_REPEATABLE = {option.name for option in SERVER_OPTIONS if option.repeatable}


def _rows(kind: str) -> list[Any]:
    return [
        pytest.param(given, expected, id=f"{topic}: {' '.join(given)}")
        for topic, rows in _TOPICS.items()
        for given, expected in rows[kind]
    ]


def _configuration(given: list[str], directory: Path) -> Configuration:
    typed: dict[str, Any] = {}
    environment = {}
    for word in given:
        name, _, value = word.partition("=")
        if word.startswith("file: "):
            path = directory / "tablestone.toml"
            path.write_text(word.removeprefix("file: "), "utf-8")
            environment["TABLESTONE_CONFIG"] = str(path)
        elif not name.startswith("--"):
            environment[name] = value
        elif name[2:] in _REPEATABLE:
            typed[name[2:].replace("-", "_")] = (*typed.get(name[2:].replace("-", "_"), ()), value)
        else:
            typed[name[2:].replace("-", "_")] = value
    return read_configuration(typed, environment)


def _plain(value: Any) -> Any:
    """A value of the configuration as TOML can say it."""
    match value:
        case None:
            return "none"
        case Enum():
            return value.name.lower()
        case Path():
            return str(value)
        case tuple():
            return [_plain(each) for each in value]
        case _ if is_dataclass(value):
            return [_plain(getattr(value, field.name)) for field in fields(value)]
    return value


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """An expectation with its texts changed."""
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    return change(value) if isinstance(value, str) else value


@pytest.mark.parametrize(("given", "expected"), _rows("understood"))
def test_understood(given: list[str], expected: dict[str, Any], tmp_path: Path) -> None:
    places = {
        "<file>": tmp_path,
        "<here>/..": Path.cwd().parent,
        "<here>": Path.cwd(),
        "<home>": Path.home(),
        "<caches>": platformdirs.user_cache_path("tablestone", appauthor=False),
        "<default>": platformdirs.user_data_path("tablestone", appauthor=False),
    }

    def placed(text: str) -> str:
        return reduce(
            lambda text, place: text.replace(place[0], str(place[1])), places.items(), text
        )

    configuration = _configuration(given, tmp_path)
    found = {name: _plain(reduce(getattr, name.split("."), configuration)) for name in expected}
    assert found == {name: _mapped(value, placed) for name, value in expected.items()}


@pytest.mark.parametrize(("given", "sentence"), _rows("refused"))
def test_refused(given: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BrokenOption) as raised:
        _configuration(given, tmp_path)
    assert str(raised.value) == sentence.replace("FILE", str(tmp_path / "tablestone.toml"))


def test_what_was_not_typed_comes_from_the_environment() -> None:
    configuration = read_configuration({"port": None, "account": ()}, {"TABLESTONE_PORT": "2"})
    assert configuration.port == 2


def test_a_file_named_from_here_names_a_directory_beside_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/t.toml").write_text('data = "d"')
    monkeypatch.chdir(tmp_path)
    configuration = read_configuration({"config": "etc/t.toml"}, {})
    assert configuration.data_directory == tmp_path / "etc/d"


def test_no_sentence_and_no_representation_repeats_a_key() -> None:
    for text in ("abc:s3cret!", "s3cret!", "s3cretS3cret", f"{'s3cret' * 10}:abc", "a:b:s3cret"):
        with pytest.raises(BrokenOption) as raised:
            read_configuration({"account": (text,)}, {})
        assert "s3cret" not in str(raised.value)
    assert KEY not in repr(AccountKeys("abc", (KEY,)))


@pytest.mark.parametrize("option", SERVER_OPTIONS, ids=lambda option: option.name)
def test_every_option_is_a_variable_of_its_own(option: Any) -> None:
    assert re.fullmatch(r"TABLESTONE_[A-Z_]+", option.variable)
    assert [other for other in SERVER_OPTIONS if other.variable == option.variable] == [option]


def test_where_the_data_is() -> None:
    stored = Configuration("", 0, Path("/srv/d"), "sqlite:/srv/d", (), "error")
    assert where(stored) == "/srv/d"
    assert "memory" in where(replace(stored, data_directory=None, engine="memory:"))
