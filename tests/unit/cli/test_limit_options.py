"""The options that limit a server's load, from each source, and the sentence that refuses a bad one."""

from pathlib import Path

import pytest

from tablestone.cli.options import BrokenOption
from tablestone.configuration import AdmissionLimits, ThroughputTargets
from unit.cli.given_options import Given, Refused, configuration_of

UNDERSTOOD = {
    "limits, from everywhere": Given(
        {"admission": AdmissionLimits(9000, 200, 64)},
        command_line={"max-connections": "9000"},
        environment={"TABLESTONE_MAX_REQUESTS": "200", "TABLESTONE_MAX_BUFFERS": "64"},
        file="max-buffers = 32\nmax-requests = 100",
    ),
    "the least that two workers need": Given(
        {"admission": AdmissionLimits(8, 1, 20)},
        command_line={
            "max-connections": "8",
            "max-requests": "1",
            "max-buffers": "20",
            "workers": "2",
        },
    ),
    "limits that nobody gave": Given({"admission": AdmissionLimits(), "targets": None}),
    "the targets of Azure": Given(
        {"targets": ThroughputTargets(20_000, 2_000)}, command_line={"targets": "Azure"}
    ),
    "targets of one's own": Given({"targets": ThroughputTargets(0, 50)}, file='targets = "0,50"'),
}

REFUSED = {
    **{
        f"{option} of {value}": Refused(
            f"--{option} must be a number from 1 to {most}, not '{value}'.",
            command_line={option: value},
        )
        for option, value, most in (
            ("max-connections", "0", 1_000_000),
            ("max-requests", "-1", 1_000_000),
            ("max-buffers", "1000001", 1_000_000),
        )
    },
    "too few connections for the workers": Refused(
        "--max-connections must be 4 for each worker at least: 12 for 3.",
        command_line={"max-connections": "11", "workers": "3"},
    ),
    "too few bytes for a transaction": Refused(
        "--max-buffers must be 10 for each worker at least: 20 for 2.",
        command_line={"max-buffers": "19", "workers": "2"},
    ),
    "max-requests as text": Refused(
        "max-requests in FILE must be a number.", file='max-requests = "2"'
    ),
    **{
        f"targets of {value}": Refused(
            "TABLESTONE_TARGETS must be azure or two numbers from 0 to 1000000, such as 20000,2000, "
            f"not '{value}'.",
            environment={"TABLESTONE_TARGETS": value},
        )
        for value in ("aws", "1", "1,", ",1", "1,2,3", "1, 2", "-1,2")
    },
}


@pytest.mark.parametrize("given", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_understood(given: Given, tmp_path: Path) -> None:
    configuration = configuration_of(given, tmp_path)
    found = {name: getattr(configuration, name) for name in given.expected}
    assert found == given.expected


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_refused(given: Refused, tmp_path: Path) -> None:
    expected = given.sentence.replace("FILE", str(tmp_path / "tablestone.toml"))
    with pytest.raises(BrokenOption) as raised:
        configuration_of(given, tmp_path)
    assert str(raised.value) == expected
