"""The words and statuses of refusals, without a browser: an admin address that does not answer, and forms of changes
in an explorer that only reads.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest

from explorer.test_explorer_bad_input import answering
from explorer.test_page_guard import COOKIE, PASSED, send
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.served_explorer import PATH, ServedExplorer
from tablestone.configuration import DEVELOPMENT_ACCOUNT
from tablestone.explorer.explored_account import ExplorerSettings
from tablestone.explorer.explorer_application import CHANGE_FORMS, READ_ONLY
from tablestone.explorer.known_sizes import NOT_KNOWN, NOT_TOLD, known_sizes
from tablestone.transfer.endpoint_connection import local_connection, parse_connection_string

OPENED = {"cookie": COOKIE}


@pytest.mark.parametrize("path", CHANGE_FORMS)
def test_read_only_shows_no_form_that_could_only_be_refused(path: str) -> None:
    path = path.replace("{table}", "Weather")
    answer = send("GET", path, OPENED, read_only=True)
    assert answer.status_code == 403
    assert READ_ONLY in answer.text
    assert "<form" not in answer.text
    assert send("GET", path, OPENED).status_code == 200


def test_an_admin_address_that_does_not_answer() -> None:
    """In the words of `tablestone insight`, without the URL of the tables before them."""
    answer = send("GET", "/heat", OPENED, admin_url="http://127.0.0.1:9")
    assert answer.status_code == PASSED
    assert (
        '<p class="problem" role="alert">The admin address 127.0.0.1:9 does not answer (Connection refused)'
        in answer.text
    )


@pytest.mark.parametrize(("given", "status"), [("true", 200), ("read-only", 403)])
def test_the_explorer_beside_a_server_can_be_read_only(given: str, status: int) -> None:
    configuration = read_configuration({"explorer": given, "engine": "memory"}, {})
    served = ServedExplorer(configuration, [DEVELOPMENT_ACCOUNT])
    nowhere = "http://127.0.0.1:9"
    application = served.mounts(nowhere, nowhere)[PATH]
    token = served.address("").partition("token=")[2]

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:80") as client:
            cookie = {"cookie": f"tablestone_explorer_80={token}"}
            return await client.get("/tables/Weather/delete", headers=cookie)

    assert asyncio.run(ask()).status_code == status


def test_the_sizes_of_an_endpoint_without_an_admin_address() -> None:
    """The protocol has none: the page says so, and who would tell them."""
    assert known_sizes(ExplorerSettings(local_connection())) == ({}, NOT_TOLD, NOT_KNOWN)


def test_the_sizes_behind_an_admin_address_that_does_not_answer() -> None:
    known = known_sizes(ExplorerSettings(local_connection(), admin_url="http://127.0.0.1:9"))
    assert known.sizes == {}
    assert known.note.startswith("The admin address 127.0.0.1:9 does not answer")


@pytest.mark.parametrize("code", ["FeatureNotSupportedForAccount", "NotImplemented"])
@pytest.mark.parametrize("path", ["/service", "/tables/Weather/policies"])
def test_what_an_endpoint_does_not_have_is_told(code: str, path: str) -> None:
    """Cosmos DB has no access policies and no service properties; Azurite had no properties for long."""
    said = f'<m:error xmlns:m="m"><m:code>{code}</m:code><m:message>Not here.</m:message></m:error>'
    with answering(lambda _path: (501, "application/xml", said.encode())) as place:
        answer = send("GET", path, OPENED, connection=parse_connection_string(place))
    assert answer.status_code == 502
    assert f"answers {code}" in answer.text
    assert 'aria-label="Pages"' in answer.text
