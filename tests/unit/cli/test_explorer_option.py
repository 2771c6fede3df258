"""The option --explorer, and others that can be true: without a value on the command line they mean true."""

from pathlib import Path
from typing import Any

import pytest

from tablestone.cli.commands.serve import serve, served_explorer
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.options import SERVER_OPTIONS
from tablestone.configuration import DEVELOPMENT_ACCOUNT
from tablestone.server.worker import StartRefused


@pytest.mark.parametrize(
    ("words", "expected"),
    {
        "alone": (["--explorer"], "true"),
        "before another option": (["--explorer", "--port", "0"], "true"),
        "before a short option": (["--explorer", "--workers=1"], "true"),
        "with a value": (["--explorer", "read-only", "--port", "0"], "read-only"),
        "with a value after an equals sign": (["--explorer=false", "--port", "0"], "false"),
        "not at all": (["--port", "0"], None),
    }.values(),
)
def test_the_explorer_needs_no_value(words: list[str], expected: str | None) -> None:
    given = serve.make_context("serve", [*words]).params
    assert given["explorer"] == expected
    assert given["port"] == ("0" if "--port" in words else None)


@pytest.mark.parametrize("option", SERVER_OPTIONS, ids=lambda option: option.name)
def test_an_option_that_can_be_true_needs_no_value(option: Any) -> None:
    if "true" in option.metavar.split("|"):
        given = serve.make_context("serve", [option.flag, "--port", "0"]).params
        assert (given[option.name.replace("-", "_")], given["port"]) == ("true", "0")
    else:
        assert option.bare is None


def path_of(file: Path | None) -> str:
    """The path of the explorer, with the token."""
    options = {"explorer": "true", "engine": "memory"}
    given = options if file is None else options | {"explorer_token_file": str(file)}
    configuration = read_configuration(given, {})
    return served_explorer(configuration, [DEVELOPMENT_ACCOUNT])[0]


def test_a_bookmark_stays_valid(tmp_path: Path) -> None:
    """The file is made once, for its user alone; without it each start has a new token."""
    file = tmp_path / "token"
    first = path_of(file)
    assert first == f"/explorer/?token={file.read_text()}"
    assert file.stat().st_mode & 0o777 == 0o600
    assert path_of(file) == first
    assert path_of(None) != path_of(None)
    file.write_text("a-token-of-my-own_0123\n", encoding="utf-8")
    assert path_of(file) == "/explorer/?token=a-token-of-my-own_0123"


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        ("a-token-of-my-own_0123", 0o640, "FILE must have mode 600 and a token for the explorer"),
        ("short", 0o600, "FILE must have mode 600 and a token for the explorer"),
        ("a token & one more, in an address", 0o600, "FILE must have mode 600 and a token for the explorer"),
    ],
)  # fmt: skip
def test_a_token_file_that_is_refused(
    tmp_path: Path, content: str, mode: int, sentence: str
) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    file.chmod(mode)
    with pytest.raises(StartRefused) as raised:
        path_of(file)
    assert str(raised.value).startswith(sentence.replace("FILE", str(file)))


def test_a_token_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="cannot be read: No such file or directory"):
        path_of(tmp_path / "nowhere" / "token")
