"""The endpoint that an SDK connects to: an address, an account and its key.

It does not matter how the server was started. Every SDK test, in any language, gets one `Endpoint` and a table of its
own.
"""

import os
import uuid
from dataclasses import dataclass

CONNECTION_STRING_VARIABLE = "TABLESTONE_TEST_CONNECTION_STRING"
DEVELOPMENT_ACCOUNT = "devstoreaccount1"
# The well-known key of the development account (wire 1.1); not a secret.
DEVELOPMENT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class Endpoint:
    """One account of a running server, path style: `http://127.0.0.1:10002/devstoreaccount1`.

    `trust` is added to a program's environment, so that it trusts the server's certificate.
    """

    url: str
    account_name: str
    account_key: str
    trust: tuple[tuple[str, str], ...] = ()

    @property
    def connection_string(self) -> str:
        return (
            f"DefaultEndpointsProtocol={self.url.partition(':')[0]};AccountName={self.account_name};"
            f"AccountKey={self.account_key};TableEndpoint={self.url};"
        )

    def connection_string_with(self, token: str) -> str:
        """The connection string with a shared access signature instead of the key."""
        return (
            f"AccountName={self.account_name};TableEndpoint={self.url};"
            f"SharedAccessSignature={token};"
        )


def endpoint_from_environment() -> Endpoint | None:
    """The server named by TABLESTONE_TEST_ENDPOINT (and _ACCOUNT, _KEY), if one is named."""
    url = os.environ.get("TABLESTONE_TEST_ENDPOINT")
    if not url:
        return None
    return Endpoint(
        url=url.rstrip("/"),
        account_name=os.environ.get("TABLESTONE_TEST_ACCOUNT", DEVELOPMENT_ACCOUNT),
        account_key=os.environ.get("TABLESTONE_TEST_KEY", DEVELOPMENT_KEY),
    )


def environment_with_signature(endpoint: Endpoint, token: str) -> dict[str, str]:
    """The same for a program that has a shared access signature and no key."""
    environment = environment_for(endpoint) | {
        CONNECTION_STRING_VARIABLE: endpoint.connection_string_with(token),
        "TABLESTONE_TEST_SIGNATURE": token,
    }
    del environment["TABLESTONE_TEST_KEY"]
    return environment


def environment_with_token(endpoint: Endpoint, token: str) -> dict[str, str]:
    """The same for a program that has a bearer token and no key."""
    environment = environment_for(endpoint) | {"TABLESTONE_TEST_TOKEN": token}
    for name in (CONNECTION_STRING_VARIABLE, "TABLESTONE_TEST_KEY"):
        del environment[name]
    return environment


def environment_for(endpoint: Endpoint) -> dict[str, str]:
    """The environment of a program in another language."""
    return (
        os.environ
        | dict(endpoint.trust)
        | {
            CONNECTION_STRING_VARIABLE: endpoint.connection_string,
            "TABLESTONE_TEST_ENDPOINT": endpoint.url,
            "TABLESTONE_TEST_ACCOUNT": endpoint.account_name,
            "TABLESTONE_TEST_KEY": endpoint.account_key,
        }
    )


def fresh_table_name() -> str:
    return f"t{uuid.uuid4().hex}"
