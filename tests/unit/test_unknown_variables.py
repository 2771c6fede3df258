"""Variables that are named like the server's and are none: each is told of, with the option that may be meant."""

from __future__ import annotations

import pytest

from tablestone.cli.configuration import read_configuration

AZURITE = (
    "AZURITE_ACCOUNTS must give the account two one or two keys, as NAME:KEY1[:KEY2]. "
    "All of it is ignored."
)
WARNED_OF: dict[str, tuple[dict[str, str], list[str]]] = {
    "a letter too few": (
        {"TABLESTONE_ACOUNT": "none"},
        ["TABLESTONE_ACOUNT is no option and is ignored: is TABLESTONE_ACCOUNT meant?"],
    ),
    "the plural": (
        {"TABLESTONE_ACCOUNTS": "none"},
        ["TABLESTONE_ACCOUNTS is no option and is ignored: is TABLESTONE_ACCOUNT meant?"],
    ),
    "a word too many": (
        {"TABLESTONE_DATA_DIR": "/srv"},
        ["TABLESTONE_DATA_DIR is no option and is ignored: is TABLESTONE_DATA meant?"],
    ),
    "the file": (
        {"TABLESTONE_CONFIG_FILE": "/srv"},
        ["TABLESTONE_CONFIG_FILE is no option and is ignored: is TABLESTONE_CONFIG meant?"],
    ),
    "not near any": (
        {"TABLESTONE_CRASH_ROUNDS": "3"},
        ["TABLESTONE_CRASH_ROUNDS is no option and is ignored."],
    ),
    "the bare prefix": ({"TABLESTONE_": "1"}, ["TABLESTONE_ is no option and is ignored."]),
    "several, by name, beside Azurite's": (
        {"TABLESTONE_QQ": "1", "AZURITE_ACCOUNTS": "two", "TABLESTONE_HOTS": "h"},
        [
            "TABLESTONE_HOTS is no option and is ignored: is TABLESTONE_HOST meant?",
            "TABLESTONE_QQ is no option and is ignored.",
            AZURITE,
        ],
    ),
    "empty, which is not there": ({"TABLESTONE_ACOUNT": ""}, []),
    "not named like ours": ({"MY_TABLESTONE_PORT": "2", "tablestone_port": "3"}, []),
    "options": ({"TABLESTONE_PORT": "2", "TABLESTONE_HTTPS_ONLY": "true"}, []),
}


@pytest.mark.parametrize(("environment", "warnings"), WARNED_OF.values(), ids=WARNED_OF)
def test_a_variable_that_is_no_option_is_warned_of(
    environment: dict[str, str], warnings: list[str]
) -> None:
    configuration = read_configuration({}, environment)
    assert list(configuration.warnings) == warnings
    if "TABLESTONE_PORT" not in environment:
        assert configuration.port == 10002
