"""An Entra login: the tools use the credential of azure-identity and send its token, over TLS, to the account's URL."""

import time
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from conftest import StartServer
from tokens import ISSUER, RsaKey, claims_at, key_set, signed
from tools.data_tools import DataTools, entity

azure_identity = pytest.importorskip(
    "azure.identity", reason="no Entra logins: pip install '.[entra]'"
)

ROLES = ["Storage Table Data Contributor", "Storage Account Contributor"]
KEY = RsaKey("entra")


class FakeCredential:
    """A user's DefaultAzureCredential with these roles; records the requested scopes."""

    roles: list[str] | None = ROLES
    asked: list[str]

    def __init__(self, **_: Any) -> None:
        FakeCredential.asked = []

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        FakeCredential.asked += scopes
        token = signed(KEY, claims_at(time.time(), roles=self.roles))
        return AccessToken(token, int(time.time()) + 3600)


@pytest.fixture
def url(private_server: StartServer, tools: DataTools, monkeypatch: pytest.MonkeyPatch) -> str:
    keys = tools.directory / "keys.json"
    keys.write_bytes(key_set(KEY))
    data = tools.directory / "data"
    server = private_server(data, "--tls", "self-signed", "--token-issuer", f"{ISSUER},{keys}")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(data / "tls" / "certificate.pem"))
    monkeypatch.setattr(azure_identity, "DefaultAzureCredential", FakeCredential)
    return server.endpoint


def test_a_login_reads_and_writes(tools: DataTools, url: str) -> None:
    entities = [entity("p", f"{number:03}", n=number) for number in range(250)]
    path = tools.write_lines("a.jsonl", entities)
    told = tools.run("import", path, "Weather", "--account-url", url).stdout
    assert told.startswith("250 entities stored in Weather")
    assert tools.run("count", "Weather", "--account-url", url).lines == ["250"]
    assert set(FakeCredential.asked) == {"https://storage.azure.com/.default"}


def test_a_user_without_a_role(tools: DataTools, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCredential, "roles", None)
    failed = tools.run("tables", "--account-url", url, status=1).stderr
    assert "AuthorizationPermissionMismatch" in failed
    assert failed.count("\n") == 1


def test_a_login_that_fails(tools: DataTools, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> AccessToken:
        raise ClientAuthenticationError("No account is logged in.\nTo mitigate this issue, …")

    monkeypatch.setattr(FakeCredential, "get_token", fail)
    for command in (("tables",), ("count", "Weather")):
        failed = tools.run(*command, "--account-url", url, status=1).stderr
        assert failed == f"tablestone: The login to {url} failed: No account is logged in.\n"


def test_plain_http_is_refused(tools: DataTools) -> None:
    refused = tools.run("tables", "--account-url", "http://a.example", status=2).stderr
    assert refused.startswith("tablestone: An Entra login needs https: ")
    assert not Path(tools.directory / "journals").exists()
