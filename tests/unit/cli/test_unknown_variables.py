"""Unknown environment variables with the server's prefix: each gets a warning with the option that may be meant."""

import pytest

from tablestone.cli.option_sources import read_configuration

AZURITE = (
    "AZURITE_ACCOUNTS must give the account two one or two keys, as NAME:KEY1[:KEY2]. "
    "The whole variable is ignored."
)
WARNED_OF: dict[str, tuple[dict[str, str], list[str]]] = {
    "a letter too few": (
        {"TABLESTONE_ACOUNT": "none"},
        ["TABLESTONE_ACOUNT is not an option and is ignored: did you mean TABLESTONE_ACCOUNT?"],
    ),
    "the plural": (
        {"TABLESTONE_ACCOUNTS": "none"},
        ["TABLESTONE_ACCOUNTS is not an option and is ignored: did you mean TABLESTONE_ACCOUNT?"],
    ),
    "a word too many": (
        {"TABLESTONE_DATA_DIR": "/srv"},
        ["TABLESTONE_DATA_DIR is not an option and is ignored: did you mean TABLESTONE_DATA?"],
    ),
    "the file": (
        {"TABLESTONE_CONFIG_FILE": "/srv"},
        ["TABLESTONE_CONFIG_FILE is not an option and is ignored: did you mean TABLESTONE_CONFIG?"],
    ),
    "not near any": (
        {"TABLESTONE_CRASH_ROUNDS": "3"},
        ["TABLESTONE_CRASH_ROUNDS is not an option and is ignored."],
    ),
    "the bare prefix": ({"TABLESTONE_": "1"}, ["TABLESTONE_ is not an option and is ignored."]),
    "several, by name, beside Azurite's": (
        {"TABLESTONE_QQ": "1", "AZURITE_ACCOUNTS": "two", "TABLESTONE_HOTS": "h"},
        [
            "TABLESTONE_HOTS is not an option and is ignored: did you mean TABLESTONE_HOST?",
            "TABLESTONE_QQ is not an option and is ignored.",
            AZURITE,
        ],
    ),
    "those of Kubernetes, beside a service of the name": (
        {
            "TABLESTONE_PORT": "tcp://10.0.0.1:10002",
            "TABLESTONE_PORT_10002_TCP": "tcp://10.0.0.1:10002",
            "TABLESTONE_PORT_10002_TCP_ADDR": "10.0.0.1",
            "TABLESTONE_SERVICE_HOST": "10.0.0.1",
            "TABLESTONE_SERVICE_PORT": "10002",
            "TABLESTONE_HOTS": "h",
        },
        [
            "TABLESTONE_PORT is the address of a service, as Kubernetes sets it, and is ignored: --port gives the "
            "port.",
            "TABLESTONE_HOTS is not an option and is ignored: did you mean TABLESTONE_HOST?",
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
    if environment.get("TABLESTONE_PORT") != "2":
        assert configuration.port == 10002
