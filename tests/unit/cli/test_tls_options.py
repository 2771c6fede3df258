"""The options of TLS and of trusted proxies: their meaning, and the text of every refusal."""

from pathlib import Path

import platformdirs
import pytest

from tablestone.cli.options import BrokenOption
from tablestone.configuration import CertificateFiles, SelfSigned
from unit.cli.given_options import BESIDE_FILE, Given, Refused, configuration_of, seen_from

CACHES = platformdirs.user_cache_path("tablestone", appauthor=False)

UNDERSTOOD = {
    "a certificate that the server makes": Given(
        {"tls": SelfSigned(Path("/srv/d/tls"), ("127.0.0.1",))},
        command_line={"tls": "self-signed", "data": "/srv/d"},
    ),
    "a certificate that the server makes for other names": Given(
        {"tls": SelfSigned(Path("/srv/d/tls"), ("::", "a.example", "*.b.example"))},
        environment={"TABLESTONE_TLS_NAME": "a.example;*.b.example"},
        file='data = "/srv/d"\nhost = "::"\ntls = "self-signed"\ntls-name = "replaced"',
    ),
    "a certificate for the domains of the accounts": Given(
        {
            "tls": SelfSigned(
                Path("/srv/d/tls"),
                ("127.0.0.1", "*.table.b.example", "weather.example", "c.example"),
            )
        },
        command_line={
            "tls": "self-signed",
            "data": "/srv/d",
            "domain": ("b.example.",),
            "custom-domain": ("weather.example=devstoreaccount1",),
            "tls-name": ("c.example",),
        },
    ),
    "a certificate for a server that keeps nothing": Given(
        {"tls": SelfSigned(CACHES / "tls", ("127.0.0.1",))},
        command_line={"tls": "self-signed", "engine": "memory"},
    ),
    "certificate and key": Given(
        {"tls": CertificateFiles(Path("/c.pem"), Path.home() / "k.pem")},
        command_line={"tls-certificate": "/c.pem", "tls-key": "~/k.pem"},
    ),
    "certificate and key in one file, relative to here": Given(
        {"tls": CertificateFiles(Path.cwd() / "c.pem", Path.cwd() / "c.pem")},
        environment={"TABLESTONE_TLS_CERTIFICATE": "c.pem"},
    ),
    "certificate and key relative to the file": Given(
        {"tls": CertificateFiles(BESIDE_FILE / "c.pem", BESIDE_FILE / "k.pem")},
        file='tls-certificate = "c.pem"\ntls-key = "k.pem"',
    ),
    "https only": Given({"https_only": True}, command_line={"https-only": "TRUE"}),
    "https only in the file": Given({"https_only": True}, file="https-only = true"),
    "not https only, over the file": Given(
        {"https_only": False},
        environment={"TABLESTONE_HTTPS_ONLY": "false"},
        file="https-only = true",
    ),
    "trusted proxies": Given(
        {"trusted_proxies": ("10.0.0.1", "fd00::/8")},
        command_line={"trusted-proxy": ("10.0.0.1", "fd00::/8")},
    ),
    "trusted proxies in the file": Given(
        {"trusted_proxies": ("10.0.0.1", "::1")}, file='trusted-proxy = ["10.0.0.1", "::1"]'
    ),
    "one trusted proxy in the file": Given(
        {"trusted_proxies": ("10.0.0.1",)}, file='trusted-proxy = "10.0.0.1"'
    ),
}


@pytest.mark.parametrize("given", UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_understood(given: Given, tmp_path: Path) -> None:
    configuration = configuration_of(given, tmp_path)
    found = {name: getattr(configuration, name) for name in given.expected}
    assert found == {name: seen_from(tmp_path, value) for name, value in given.expected.items()}


REFUSED = {
    "TLS of another kind": Refused(
        "tls in FILE must be self-signed, not 'c.pem'; a certificate of your own is given with --tls-certificate.",
        file='tls = "c.pem"',
    ),
    "two certificates": Refused(
        "Both --tls and --tls-certificate are given: give one of them.",
        command_line={"tls": "self-signed", "tls-certificate": "c.pem"},
    ),
    "two certificates from two places": Refused(
        "Both TABLESTONE_TLS and tls-certificate in FILE are given: give one of them.",
        environment={"TABLESTONE_TLS": "self-signed"},
        file='tls-certificate = "c.pem"',
    ),
    "a key without a certificate in the environment": Refused(
        "TABLESTONE_TLS_KEY names the key of a certificate: give --tls-certificate too.",
        environment={"TABLESTONE_TLS_KEY": "k.pem"},
    ),
    "a key without a certificate": Refused(
        "--tls-key names the key of a certificate: give --tls-certificate too.",
        command_line={"tls-key": "k.pem"},
    ),
    "a name without a certificate": Refused(
        "--tls-name is for a self-signed certificate: give --tls too.",
        command_line={"tls-name": ("a.example",), "tls-certificate": "c.pem"},
    ),
    "a name that is none": Refused(
        "--tls-name must be a host name or an IP address, not 'https://a.example'.",
        command_line={"tls": "self-signed", "tls-name": ("https://a.example",)},
    ),
    "a name with a star inside": Refused(
        "--tls-name must be a host name or an IP address, not 'a.*.example'.",
        command_line={"tls": "self-signed", "tls-name": ("a.*.example",)},
    ),
    "names of another kind": Refused(
        "tls-name in FILE must be a string or a list of strings.", file="tls-name = [1]"
    ),
    "nobody's home directory for a key": Refused(
        "The file ~nobody-of-this-name/k cannot be found: there is no such home directory.",
        command_line={"tls-certificate": "/c.pem", "tls-key": "~nobody-of-this-name/k"},
    ),
    "neither true nor false": Refused(
        "--https-only must be true or false, not 'yes'.", command_line={"https-only": "yes"}
    ),
    "true as text": Refused(
        "https-only in FILE must be true or false.", file='https-only = "true"'
    ),
    "a proxy by name": Refused(
        "--trusted-proxy must be an IP address or a network such as 10.0.0.0/8, not 'proxy'.",
        command_line={"trusted-proxy": ("proxy",)},
    ),
    "a network with a host in it": Refused(
        "--trusted-proxy must be an IP address or a network such as 10.0.0.0/8, not '10.0.0.1/8'.",
        command_line={"trusted-proxy": ("10.0.0.1/8",)},
    ),
    "every proxy": Refused(
        "--trusted-proxy must be an IP address or a network such as 10.0.0.0/8, not '*'.",
        command_line={"trusted-proxy": ("*",)},
    ),
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_refused(given: Refused, tmp_path: Path) -> None:
    expected = given.sentence.replace("FILE", str(tmp_path / "tablestone.toml"))
    with pytest.raises(BrokenOption) as raised:
        configuration_of(given, tmp_path)
    assert str(raised.value) == expected
