"""A server that accepts only HTTPS, and the proxies that may say that a request came over HTTPS."""

import http.client
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient

from server_process import NotReady, ServerProcess
from signing import signed_headers

StartServer = Callable[..., ServerProcess]


def error_code(server: ServerProcess, **headers: str) -> str:
    """The code of the answer to a signed Query Tables over plain HTTP, "" if it succeeds."""
    target = f"{urlsplit(server.endpoint).path}/Tables"
    signed = signed_headers(server.account_name, server.account_key, method="GET", target=target)
    with closing(http.client.HTTPConnection(*server.address, timeout=20)) as client:
        client.request("GET", target, headers=dict(signed) | headers)
        answer = client.getresponse()
        body = json.loads(answer.read())
    if answer.status == 200:
        return ""
    code = body["odata.error"]["code"]
    assert answer.status == {"AccountRequiresHttps": 400}[code]
    return str(code)


def test_https_only_refuses_http(private_server: StartServer, tmp_path: Path) -> None:
    """400 AccountRequiresHttps (wire 1.1); a warning tells the operator if no request can get in."""
    server = private_server(tmp_path, "--https-only", "true")
    with (
        TableServiceClient.from_connection_string(server.connection_string) as service,
        pytest.raises(HttpResponseError) as refused,
    ):
        list(service.list_tables())
    assert refused.value.status_code == 400
    assert "AccountRequiresHttps" in str(refused.value)
    assert "The account being accessed does not support http." in str(refused.value)
    server.stop()
    assert "--https-only refuses every request" in server.stderr


WHATEVER_IT_IS = {
    "a preflight request": ("OPTIONS", "/devstoreaccount1/t", 400),
    "no credentials": ("GET", "/devstoreaccount1/Tables", 400),
    "an unknown version": ("GET", "/devstoreaccount1/Tables?api-version=1999-01-01", 400),
    "an account nobody knows": ("GET", "/nobody/Tables", 404),
}


def test_https_only_refuses_whatever_it_is(private_server: StartServer, tmp_path: Path) -> None:
    server = private_server(tmp_path, "--https-only", "true")
    with closing(http.client.HTTPConnection(*server.address, timeout=20)) as client:
        for request, (method, target, status) in WHATEVER_IT_IS.items():
            client.request(method, target, headers={"Origin": "http://a.example"})
            answer = client.getresponse()
            assert answer.status == status, request
            assert (b"AccountRequiresHttps" in answer.read()) == (status == 400), request


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trusted", "headers", "code"),
    [
        ("127.0.0.1", {"X-Forwarded-Proto": "https"}, ""),
        ("127.0.0.0/8", {"X-Forwarded-Proto": "https"}, ""),
        ("127.0.0.1", {"X-Forwarded-Proto": "HTTPS"}, ""),
        ("127.0.0.1", {"X-Forwarded-Proto": "https, https"}, ""),
        ("127.0.0.1", {"X-Forwarded-Proto": "https, http"}, "AccountRequiresHttps"),
        ("127.0.0.1", {"X-Forwarded-Proto": "wss"}, "AccountRequiresHttps"),
        ("127.0.0.1", {"X-Forwarded-Proto": "http"}, "AccountRequiresHttps"),
        ("127.0.0.1", {}, "AccountRequiresHttps"),
        ("10.0.0.0/8", {"X-Forwarded-Proto": "https"}, "AccountRequiresHttps"),
    ],
)
def test_only_a_trusted_proxy_says_that_it_was_https(
    private_server: StartServer, tmp_path: Path, trusted: str, headers: dict[str, str], code: str
) -> None:
    """Behind a proxy that terminates TLS (auth 6)."""
    server = private_server(tmp_path, "--https-only", "true", "--trusted-proxy", trusted)
    assert error_code(server, **headers) == code


def test_a_trusted_proxy_on_a_socket_of_both_families(
    private_server: StartServer, tmp_path: Path
) -> None:
    given = ["--https-only", "true", "--trusted-proxy", "127.0.0.1", "--host", "::"]
    try:
        server = private_server(tmp_path, *given)
    except NotReady:
        pytest.skip("this machine has no IPv6")
    server.endpoint = server.endpoint.replace("[::1]", "127.0.0.1")
    assert error_code(server, **{"X-Forwarded-Proto": "https"}) == ""


def test_no_proxy_is_believed_where_none_is_trusted(
    private_server: StartServer, tmp_path: Path
) -> None:
    server = private_server(tmp_path, "--https-only", "true")
    assert error_code(server, **{"X-Forwarded-Proto": "https"}) == "AccountRequiresHttps"
