"""The options of a server for tests, `--control` and `--print`, from each source, and every refusal."""

from pathlib import Path

import pytest

from tablestone.cli.options import BrokenOption
from unit.cli.given_options import Given, Refused, configuration_of

UNDERSTOOD = {
    "neither": Given({"control_port": None, "ready_form": "text"}, {"engine": "memory"}),
    "typed": Given(
        {"control_port": 10003, "ready_form": "json"},
        {"engine": "memory", "control": "10003", "print": "json"},
    ),
    "in the environment": Given(
        {"control_port": 0, "ready_form": "json"},
        {"engine": "memory"},
        {"TABLESTONE_CONTROL": "0", "TABLESTONE_PRINT": "JSON"},
    ),
    "in the file": Given(
        {"control_port": 5, "ready_form": "json"},
        file='engine = "memory"\ncontrol = 5\nprint = "json"',
    ),
    "an address that only this machine reaches": Given(
        {"control_port": 5}, {"engine": "memory", "control": "5", "host": "::1"}
    ),
    "realism": Given(
        {"realism": True, "table_deletion_seconds": 0},
        {"engine": "memory", "control": "5", "realism": "true"},
    ),
    "no realism, without control": Given({"realism": False}, {"realism": "false"}),
    "realism in the file": Given(
        {"realism": True}, file='engine = "memory"\ncontrol = 5\nrealism = true'
    ),
    "JSON without control": Given({"ready_form": "json"}, {"print": "json"}),
}


@pytest.mark.parametrize("given", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_understood(given: Given, tmp_path: Path) -> None:
    configuration = configuration_of(given, tmp_path)
    assert {name: getattr(configuration, name) for name in given.expected} == given.expected


REFUSED = {
    "another engine": Refused(
        "--control can erase everything, so it needs --engine memory, which stores nothing.",
        {"control": "0"},
    ),
    "another engine, named in the file": Refused(
        "control in FILE can erase everything, so it needs --engine memory, which stores nothing.",
        {"engine": "sqlite:/srv/d"},
        file="control = 0",
    ),
    "a public address": Refused(
        "--control must be a port of the loopback address, without a host, not '0.0.0.0:5': other machines must not "
        "reach it.",
        {"engine": "memory", "control": "0.0.0.0:5"},
    ),
    "a server that others reach": Refused(
        "TABLESTONE_CONTROL is for tests on this machine, but other machines can reach the host 0.0.0.0: "
        "leave out --host.",
        {"engine": "memory", "host": "0.0.0.0"},
        {"TABLESTONE_CONTROL": "5"},
    ),
    "several workers": Refused(
        "2 workers cannot share the engine memory, which has its rows in one process.",
        {"engine": "memory", "control": "0", "workers": "2"},
    ),
    "an admin address": Refused(
        "Both --control and TABLESTONE_ADMIN are given: a server under control has no admin address.",
        {"engine": "memory", "control": "0"},
        {"TABLESTONE_ADMIN": "5"},
    ),
    "no port": Refused(
        "--control must be a number from 0 to 65535, not 'yes'.",
        {"engine": "memory", "control": "yes"},
    ),
    "realism without control": Refused(
        "TABLESTONE_REALISM is for tests: it needs --control.",
        {"engine": "memory"},
        {"TABLESTONE_REALISM": "true"},
    ),
    "an unknown form": Refused("--print must be text or json, not 'xml'.", {"print": "xml"}),
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_refused(given: Refused, tmp_path: Path) -> None:
    with pytest.raises(BrokenOption) as raised:
        configuration_of(given, tmp_path)
    assert str(raised.value) == given.sentence.replace("FILE", str(tmp_path / "tablestone.toml"))
