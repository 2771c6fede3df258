"""The words and statuses of refusals, without a browser: an admin address that does not answer, and forms of changes
in an explorer that only reads.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest

from explorer.test_page_guard import COOKIE, PASSED, send
from tablestone.cli.option_sources import read_configuration
from tablestone.cli.served_explorer import PATH, ServedExplorer
from tablestone.configuration import DEVELOPMENT_ACCOUNT
from tablestone.explorer.explorer_application import CHANGE_FORMS, READ_ONLY

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
