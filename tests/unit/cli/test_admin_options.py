"""The options of the admin address, from each source."""

from pathlib import Path

import pytest

from tablestone.cli.options import BrokenOption
from tablestone.configuration import AdminAddress
from unit.cli.given_options import Given, Refused, configuration_of

GIVEN = {
    "none": Given({"admin": None}),
    "a port": Given({"admin": AdminAddress("127.0.0.1", 9090)}, command_line={"admin": "9090"}),
    "a free port": Given(
        {"admin": AdminAddress("127.0.0.1", 0)}, command_line={"admin": "0", "port": "0"}
    ),
    "a host": Given(
        {"admin": AdminAddress("0.0.0.0", 9090)}, environment={"TABLESTONE_ADMIN": "0.0.0.0:9090"}
    ),
    "an IPv6 address": Given(
        {"admin": AdminAddress("::1", 9090)}, command_line={"admin": "[::1]:9090"}
    ),
    "a number in the file": Given({"admin": AdminAddress("127.0.0.1", 9090)}, file="admin = 9090"),
    "insight on this machine": Given({"insight": "keys"}, command_line={"admin": "127.0.0.1:9090"}),
    "insight where other machines connect": Given(
        {"insight": "hashed"}, command_line={"admin": "0.0.0.0:9090"}
    ),
    "insight with keys for other machines": Given(
        {"insight": "keys"}, command_line={"admin": "0.0.0.0:9090", "insight": "keys"}
    ),
    "no insight": Given({"insight": "off"}, environment={"TABLESTONE_INSIGHT": "OFF"}),
    "a host in the file": Given(
        {"admin": AdminAddress("localhost", 9090)}, file='admin = "localhost:9090"'
    ),
}
FORM = "must be PORT or HOST:PORT, such as 10003 or 127.0.0.1:10003, not"
REFUSED = {
    **{
        text: Refused(f"--admin {FORM} {text!r}.", command_line={"admin": text})
        for text in ("x", ":9090", "host", "host:", "::1:9090", "[host]:9090", "[]:1", "70000")
    },
    "the data port": Refused(
        "--admin names port 10002, at which the tables are served: give it another port.",
        command_line={"admin": "10002"},
    ),
    "the data port, by another address": Refused(
        "admin in FILE names port 8000, at which the tables are served: give it another port.",
        command_line={"port": "8000"},
        file='admin = "0.0.0.0:8000"',
    ),
    "an unknown form of insight": Refused(
        "--insight must be keys, hashed or off, not 'all'.", command_line={"insight": "all"}
    ),
    "in the file": Refused("admin in FILE must be a number or a string.", file="admin = true"),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_given(given: Given, tmp_path: Path) -> None:
    configuration = configuration_of(given, tmp_path)
    assert {name: getattr(configuration, name) for name in given.expected} == given.expected


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_refused(given: Refused, tmp_path: Path) -> None:
    expected = given.sentence.replace("FILE", str(tmp_path / "tablestone.toml"))
    with pytest.raises(BrokenOption) as raised:
        configuration_of(given, tmp_path)
    assert str(raised.value) == expected
