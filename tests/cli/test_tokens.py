"""`tablestone token` and `tablestone role` beside a running server: SDKs with bearer tokens over TLS."""

import asyncio
import base64
import json
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Self

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.data.tables import TableServiceClient
from azure.data.tables.aio import TableServiceClient as AsyncTableServiceClient

from certificates import trusting
from cli.command_line import in_this_process
from cli.test_refusals import run_command
from server_process import ServerProcess
from tokens import AUDIENCE, ISSUER, RsaKey, claims_at, key_set, signed

StartServer = Callable[..., ServerProcess]

WORKERS = ("1", "2")


class StaticCredential:
    """Replaces DefaultAzureCredential in a program without a cloud."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.asked: list[tuple[str, ...]] = []
        self.tenants: list[Any] = []

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.asked.append(scopes)
        self.tenants.append(options.get("tenant_id"))
        return AccessToken(self.token, int(time.time()) + 3600)


class AsyncStaticCredential(StaticCredential):
    """The same for the asynchronous client."""

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # type: ignore[override]
        return super().get_token(*scopes, **options)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass


def done(*arguments: str) -> str:
    status, printed, error = in_this_process(*arguments)
    assert (status, error) == (0, "")
    return printed.strip()


def certificate_of(data: Path) -> str:
    return str(data / "tls" / "certificate.pem")


def service_client(
    server: ServerProcess, data: Path, token: str, **options: Any
) -> TableServiceClient:
    return TableServiceClient(
        server.endpoint,
        credential=StaticCredential(token),
        connection_verify=certificate_of(data),
        retry_total=0,
        **options,
    )


def code_of(error: HttpResponseError) -> str:
    return getattr(error, "error_code", None) or ""


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
def test_the_sdk_with_a_token_of_the_server_s_own(
    private_server: StartServer, tmp_path: Path, workers: str
) -> None:
    server = private_server(tmp_path, "--tls", "self-signed", "--workers", workers)
    token = done("token", "--data", str(tmp_path))
    with service_client(server, tmp_path, token) as service:
        table = service.create_table("Weather")
        table.create_entity({"PartitionKey": "JFK", "RowKey": "1", "temperature": 3.9})
        table.submit_transaction(
            [("upsert", {"PartitionKey": "JFK", "RowKey": str(n)}) for n in range(2, 5)]
        )
        assert len(list(table.list_entities())) == 4
        with pytest.raises(ResourceNotFoundError) as caught:
            table.get_table_access_policy()
        assert caught.value.status_code == 404

    async def reads_too() -> int:
        async with AsyncTableServiceClient(
            server.endpoint,
            credential=AsyncStaticCredential(token),
            connection_verify=certificate_of(tmp_path),
        ) as service:
            return len([one async for one in service.get_table_client("weather").list_entities()])

    assert asyncio.run(reads_too()) == 4
    assert server.stop() == 0
    assert server.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("workers", WORKERS)
def test_roles_given_and_taken_beside_a_running_server(
    private_server: StartServer, tmp_path: Path, workers: str
) -> None:
    """The change takes effect on the next request to every worker."""
    server = private_server(tmp_path, "--tls", "self-signed", "--workers", workers)
    data = ("--data", str(tmp_path))
    owner = done("token", *data)
    with service_client(server, tmp_path, owner) as service:
        for name in ("Weather", "Other"):
            service.create_table(name)
    token = done("token", *data, "--principal", "Alice")

    def codes(table: str) -> set[str]:
        found = set()
        for _ in range(8):
            with service_client(server, tmp_path, token) as service:
                try:
                    list(service.get_table_client(table).list_entities())
                    found.add("")
                except HttpResponseError as error:
                    found.add(code_of(error))
        return found

    refused = {"AuthorizationPermissionMismatch"}
    assert codes("Weather") == refused
    reader = ("Storage Table Data Reader", "--principal", "alice")
    assert done("role", "assign", *reader, "--table", "weather", *data) == (
        "alice has the role Storage Table Data Reader in table weather of account devstoreaccount1."
    )
    assert (codes("Weather"), codes("Other")) == ({""}, refused)
    done("role", "assign", *reader, *data)
    done("role", "assign", *reader, *data)
    assert done("role", "list", *data).splitlines() == [
        "devstoreaccount1\tweather\tStorage Table Data Reader\talice",
        "devstoreaccount1\t*\tStorage Table Data Reader\talice",
    ]
    assert codes("Other") == {""}
    done("role", "remove", *reader, *data)
    assert (codes("Weather"), codes("Other")) == ({""}, refused)
    done("role", "remove", *reader, "--table", "WEATHER", *data)
    assert codes("Weather") == refused
    assert done("role", "list", *data) == ""
    status, printed, _ = in_this_process("role", "remove", *reader, *data)
    assert status == 1
    assert printed.startswith("alice was not assigned the role")
    assert server.stop() == 0
    assert server.stderr == ""
    assert done("check", *data).endswith("healthy")


def test_the_sdk_discovers_the_tenant_by_the_challenge(
    private_server: StartServer, tmp_path: Path
) -> None:
    """A token that the server does not accept gets 401 and the challenge; the SDK then asks for one of that tenant."""
    tenant = "11111111-2222-4333-8444-555555555555"
    server = private_server(tmp_path, "--tls", "self-signed", "--token-tenant", tenant)

    class Learning(StaticCredential):
        def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            if options.get("tenant_id") == tenant:
                self.token = done("token", "--data", str(tmp_path))
            return super().get_token(*scopes, **options)

    credential = Learning("a.b.c")
    with TableServiceClient(
        server.endpoint,
        credential=credential,
        connection_verify=certificate_of(tmp_path),
        api_version="2020-12-06",
    ) as service:
        service.create_table("Weather")
    assert credential.tenants[-1] == tenant
    assert credential.asked[-1] == ("https://storage.azure.com/.default",)


def test_the_challenge_without_a_first_token(private_server: StartServer, tmp_path: Path) -> None:
    """The first request of .NET and Java with tenant discovery has no token and no body (auth 4.2)."""
    server = private_server(tmp_path, "--tls", "self-signed")
    host, port = server.address
    with closing(
        HTTPSConnection(host, port, context=trusting(Path(certificate_of(tmp_path))), timeout=20)
    ) as connection:
        connection.request(
            "POST",
            "/devstoreaccount1/Tables",
            headers={"x-ms-version": "2020-12-06", "Content-Length": "0"},
        )
        response = connection.getresponse()
        response.read()
    assert response.status == 401
    assert response.getheader("WWW-Authenticate") == (
        "Bearer authorization_uri=https://login.microsoftonline.com/7ab1e570-0000-4000-8000-000000000000"
        "/oauth2/authorize resource_id=https://storage.azure.com"
    )


@pytest.mark.slow
def test_a_configured_issuer_whose_keys_are_in_a_file(
    private_server: StartServer, tmp_path: Path
) -> None:
    """The keys rotate while the server runs; a token of the server's own is not accepted."""
    keys, data, others = tmp_path / "keys.json", tmp_path / "data", tmp_path / "others"
    first, second = RsaKey("one"), RsaKey("two")
    keys.write_bytes(key_set(first))
    server = private_server(
        *(data, "--tls", "self-signed", "--workers", "2", "--token-issuer", f"{ISSUER},{keys}"),
        *("--token-audience", "api://tables"),
        constants={"tablestone.accounts.issuer_keys.FILE_SECONDS": 0.5},
    )

    def lists(key: RsaKey, **claims: Any) -> bool:
        token = signed(key, claims_at(time.time(), **claims))
        with service_client(server, data, token, api_version="2020-12-06") as service:
            try:
                return list(service.list_tables()) == []
            except ClientAuthenticationError:
                return False

    assert lists(first)
    assert lists(first, aud="api://tables")
    assert not lists(second)
    assert not lists(first, exp=int(time.time()) - 120)
    keys.write_bytes(key_set(second))
    ends = time.monotonic() + 40
    while not lists(second) or lists(first):
        assert time.monotonic() < ends
        time.sleep(0.2)
    others.mkdir()
    token = done("token", "--data", str(others))
    with (
        service_client(server, data, token, api_version="2020-12-06") as service,
        pytest.raises(ClientAuthenticationError),
    ):
        list(service.list_tables())
    assert server.stop() == 0
    assert server.stderr_without("authentication failed") == ""


NOT_THERE = {
    "nothing": ((), ""),
    "a table": (("--table", "Nosuch"), "There is no table Nosuch in it yet."),
    "a stored account": (("--account", "weather"), ""),
    "an account": (
        ("--account", "nobody", "--table", "Nosuch"),
        "There is no account nobody yet, unless one of that name is configured.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("place", "sentence"), NOT_THERE.values(), ids=NOT_THERE)
def test_a_role_in_a_place_that_is_not_there_yet(
    tmp_path: Path, place: tuple[str, ...], sentence: str
) -> None:
    done("account", "create", "weather", "--data", str(tmp_path))
    command = ("role", "assign", "Storage Table Data Reader", "--principal", "alice")
    printed = done(*command, *place, "--data", str(tmp_path)).splitlines()
    assert printed[0].startswith("alice has the role Storage Table Data Reader in ")
    assert "".join(printed[1:]) == sentence


WITHOUT_KEYS = {
    "not there": (None, "no such file or directory"),
    "not JSON": ("keys", "it is not JSON"),
    "empty": ('{"keys": []}', "it has no key with an id that signs with RS256 or ES256"),
}


@pytest.mark.parametrize(("content", "reason"), WITHOUT_KEYS.values(), ids=WITHOUT_KEYS)
def test_a_file_without_keys_is_refused_before_the_data_is_created(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    keys, data = tmp_path / "keys.json", tmp_path / "data"
    if content is not None:
        keys.write_text(content)
    issuer = ("--token-issuer", f"{ISSUER},{keys}")
    assert run_command("serve", "--port", "0", "--workers", "2", "--data", str(data), *issuer) == (
        2,
        "",
        f"tablestone: The keys of {ISSUER} cannot be read from {keys}: {reason}.\n",
    )
    assert not data.exists()


def claims_of(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    found: dict[str, Any] = json.loads(
        base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    )
    return found


@pytest.mark.slow
def test_what_a_token_says(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    plain = claims_of(done("token", *data))
    assert plain["aud"] == AUDIENCE
    assert plain["roles"] == ["Storage Table Data Contributor"]
    assert plain["exp"] - plain["iat"] == 3600
    asked = claims_of(
        done(
            *("token", *data, "--principal", "bob", "--role", "storage table data reader"),
            *("--audience", "api://x", "--lifetime", "60"),
            *("--token-tenant", "11111111-2222-4333-8444-555555555555"),
        )
    )
    assert (asked["oid"], asked["aud"]) == ("bob", "api://x")
    assert asked["roles"] == ["Storage Table Data Reader"]
    assert asked["exp"] - asked["iat"] == 60
    assert asked["tid"] == "11111111-2222-4333-8444-555555555555"
    assert asked["iss"] == plain["iss"], "the key is made once"
    assert claims_of(done("token", *data, "--principal", "bob"))["roles"] == []
