"""The options of the logs, from each source."""

from pathlib import Path

import pytest

from tablestone.cli.options import BrokenOption
from tablestone.telemetry.access_log import AccessLogTarget
from unit.cli.given_options import Given, Refused, configuration_of

GIVEN = {
    "an access log on standard output": Given(
        {"access_log": AccessLogTarget("json"), "log_format": "text"},
        command_line={"access-log": "json"},
    ),
    "an access log in a file": Given(
        {"access_log": AccessLogTarget("json", Path("/var/log/t.log")), "log_format": "json"},
        environment={"TABLESTONE_ACCESS_LOG": "/var/log/t.log", "TABLESTONE_LOG_FORMAT": "JSON"},
    ),
    "a form that the file names": Given(
        {"access_log": AccessLogTarget("text")}, file='access-log = "text"'
    ),
    "none": Given({"access_log": None, "log_format": "text"}),
}
REFUSED = {
    "log format": Refused(
        "--log-format must be text or json, not 'xml'.", command_line={"log-format": "xml"}
    ),
    "access log in the file": Refused(
        "access-log in FILE must be a string.", file="access-log = 1"
    ),
    "an empty access log": Refused(
        "--access-log must not be empty.", command_line={"access-log": ""}
    ),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_given(given: Given, tmp_path: Path) -> None:
    configuration = configuration_of(given, tmp_path)
    assert {name: getattr(configuration, name) for name in given.expected} == given.expected


def test_a_path_in_the_file_is_seen_from_the_file(tmp_path: Path) -> None:
    configuration = configuration_of(Given({}, file='access-log = "access.log"'), tmp_path)
    assert configuration.access_log == AccessLogTarget("text", tmp_path / "access.log")


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_refused(given: Refused, tmp_path: Path) -> None:
    expected = given.sentence.replace("FILE", str(tmp_path / "tablestone.toml"))
    with pytest.raises(BrokenOption) as raised:
        configuration_of(given, tmp_path)
    assert str(raised.value) == expected
