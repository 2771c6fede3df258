"""Certificates that no authority has signed: the hint, and `--ca-file`, which every data tool takes."""

from pathlib import Path

import pytest

from conftest import StartServer
from tools.data_tools import DataTools, entity


@pytest.fixture
def certificate(
    private_server: StartServer, tools: DataTools, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The certificate of a server to which the tools connect."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "")  # what a command sets ends with the test
    data = tools.directory / "data"
    tools.connection_string = private_server(data, "--tls", "self-signed").connection_string
    return data / "tls" / "certificate.pem"


def test_the_tools_trust_the_certificates_of_ca_file(tools: DataTools, certificate: Path) -> None:
    refused = tools.run("tables", status=1).stderr
    assert refused.startswith("tablestone: https://127.0.0.1:")
    assert refused.endswith(
        ": self-signed certificate; --ca-file names the certificates to trust\n"
    )

    trusting = ("--ca-file", certificate)
    path = tools.write_lines("a.jsonl", [entity("p", "1", n=1)])
    tools.run("import", path, "Orders", "--quiet", *trusting)
    tools.extra = {"REQUESTS_CA_BUNDLE": ""}
    assert tools.run("count", "Orders", *trusting).lines == ["1"]
    place = tools.directory / "place.txt"
    place.write_text(tools.connection_string)
    ended = tools.run("diff", f"@{place}", f"@{place}", "Orders", "--quiet", *trusting)
    assert ended.lines[0].startswith("Orders: ")


def test_a_file_without_certificates(tools: DataTools, certificate: Path) -> None:
    missing = tools.run("tables", "--ca-file", certificate.parent / "x", status=2).stderr
    assert "'--ca-file': File '" in missing
    keys = tools.write_lines("keys.jsonl", [])
    assert tools.run("tables", "--ca-file", keys, status=2).stderr == (
        f"tablestone: {keys} has no certificates to trust: it must be PEM.\n"
    )
