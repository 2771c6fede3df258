"""The options for hosts that name accounts: their meaning, and the text of every refusal."""

from pathlib import Path

import pytest

from tablestone.cli.options import BrokenOption
from unit.cli.given_options import Given, Refused, configuration_of

UNDERSTOOD = {
    "domains": Given(
        {"domains": ("example.com", "tables")},
        command_line={"domain": ("Example.com.", "tables")},
    ),
    "a domain in the file": Given({"domains": ("a.b",)}, file='domain = "a.b"'),
    "custom domains": Given(
        {"custom_domains": (("a.example", "one"), ("b", "one-secondary"))},
        environment={"TABLESTONE_CUSTOM_DOMAIN": "A.Example=one;b=one-secondary"},
    ),
    "custom domains in the file": Given(
        {"custom_domains": (("a.example", "one"),)}, file='custom-domain = ["a.example=one"]'
    ),
    "two hosts of one account": Given(
        {"custom_domains": (("a.example", "one"), ("b.example", "one"))},
        command_line={"custom-domain": ("a.example=one", "b.example=one")},
    ),
}

REFUSED = {
    "a domain with a port": Refused(
        "--domain must be a domain's name, such as example.com, not 'example.com:1'.",
        command_line={"domain": ("example.com:1",)},
    ),
    "a domain that is an address": Refused(
        "--domain must be a domain's name, such as example.com, not '127.0.0.1'.",
        command_line={"domain": ("127.0.0.1",)},
    ),
    "an option for a domain": Refused(
        "--domain must be a domain's name, such as example.com, not '--tls'.",
        command_line={"domain": ("--tls",)},
    ),
    "an address for a custom domain": Refused(
        "--custom-domain must be a host with a name of its own, not 127.0.0.1.",
        command_line={"custom-domain": ("a.example=one", "127.0.0.1=one")},
    ),
    "this machine's own name for a custom domain": Refused(
        "TABLESTONE_CUSTOM_DOMAIN must be a host with a name of its own, not localhost.",
        environment={"TABLESTONE_CUSTOM_DOMAIN": "LocalHost.=one"},
    ),
    "an address of version 6 for a custom domain": Refused(
        "--custom-domain must be a host's name and an account, such as tables.example.com=ACCOUNT, "
        "not '[::1]=one'.",
        command_line={"custom-domain": ("[::1]=one",)},
    ),
    "a custom domain without an account": Refused(
        "--custom-domain must be a host's name and an account, such as tables.example.com=ACCOUNT, "
        "not 'example.com'.",
        command_line={"custom-domain": ("example.com",)},
    ),
    "one host for two accounts": Refused(
        "--custom-domain names the host a.example twice.",
        command_line={"custom-domain": ("a.example=one", "b.example=one", "a.example=two")},
    ),
    "one host, written in two ways, in the environment": Refused(
        "TABLESTONE_CUSTOM_DOMAIN names the host a.example twice.",
        environment={"TABLESTONE_CUSTOM_DOMAIN": "a.example=one;A.Example.=two"},
    ),
    "one host in the file, for an account and its secondary": Refused(
        "custom-domain in FILE names the host a.example twice.",
        file='custom-domain = ["a.example=one", "a.example=one-secondary"]',
    ),
    "the same words twice": Refused(
        "--custom-domain names the host a.example twice.",
        command_line={"custom-domain": ("a.example=one", "a.example=one")},
    ),
}


@pytest.mark.parametrize("given", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_understood(given: Given, tmp_path: Path) -> None:
    configuration = configuration_of(given, tmp_path)
    assert {name: getattr(configuration, name) for name in given.expected} == given.expected


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_refused(given: Refused, tmp_path: Path) -> None:
    with pytest.raises(BrokenOption) as raised:
        configuration_of(given, tmp_path)
    assert str(raised.value) == given.sentence.replace("FILE", str(tmp_path / "tablestone.toml"))
