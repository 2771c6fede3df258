"""The command that installs an extra: from where this installation came, never from an index that may have another."""

import json
from importlib import metadata
from pathlib import Path
from typing import NoReturn

import pytest

from tablestone import extras


class _Distribution:
    def __init__(self, origin: object) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "'/path/to/tablestone[tools]'"),
        ({"url": "https://example.org/t.git"}, "'/path/to/tablestone[tools]'"),
        ({"url": "file://HERE/a%20b", "dir_info": {}}, "'HERE/a b[tools]'"),
        ({"url": "file://HERE/a%20b", "dir_info": {"editable": True}}, "-e 'HERE/a b[tools]'"),
        ({"url": "file://HERE/gone.whl"}, "'/path/to/tablestone[tools]'"),
    ],
)
def test_the_command_for_each_origin(
    origin: dict[str, object] | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    if origin is not None:
        origin = {**origin, "url": str(origin["url"]).replace("HERE", str(tmp_path))}
    monkeypatch.setattr(metadata, "distribution", lambda _name: _Distribution(origin))
    sentence = f"This needs a package: pip install {expected.replace('HERE', str(tmp_path))}"
    assert extras.needs("This", "a package", "tools") == sentence


def test_the_command_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_name: str) -> NoReturn:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "distribution", none)
    assert extras.pip_install("tools,entra").endswith(" '/path/to/tablestone[tools,entra]'")
