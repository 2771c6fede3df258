"""The options with which advice's commands find the data of a server."""

from pathlib import Path

import pytest

from tablestone.cli.option_sources import read_configuration
from tablestone.server.admin.insight_page import storage_options


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"data": "/srv/t"}, " --data /srv/t"),
        ({"data": "/srv/my tables"}, " --data '/srv/my tables'"),
        ({"engine": "sqlite:/srv/t"}, " --data /srv/t"),
        ({"engine": "memory"}, ""),
        (
            {"data": "/srv/t", "encryption-key-file": "{key}"},
            " --data /srv/t --encryption-key-file {key}",
        ),
    ],
)
def test_the_options_find_the_data(given: dict[str, str], options: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("ab" * 32)
    typed = {name.replace("-", "_"): text.format(key=key) for name, text in given.items()}
    configuration = read_configuration(typed, {"HOME": str(tmp_path)})
    assert storage_options(configuration) == options.format(key=key)
