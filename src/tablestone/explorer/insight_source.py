"""The report of insight, asked of the admin address of a server.

The admin address asks for no key, so none is sent. Knows the address and the report; knows no page.
"""

from __future__ import annotations

import http.client
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from tablestone.telemetry.insight_report import InsightReport
from tablestone.transfer.refusals import TransferFailed

SECONDS_MAX: Final = 10
PATH: Final = "/insight"
# The admin address is on this machine or beside it: no proxy of the environment knows it.
_opener: Final = build_opener(ProxyHandler({}))


def insight_of(admin_url: str, account: str, table: str | None = None) -> InsightReport:
    """The report of one account, with heat maps if it is of one table. `TransferFailed` says why there is none."""
    given = {"account": account} | ({} if table is None else {"table": table})
    try:
        with _opener.open(f"{admin_url}{PATH}?{urlencode(given)}", timeout=SECONDS_MAX) as answer:
            return InsightReport.from_json(answer.read())
    except HTTPError as error:
        said = error.read(300).decode("utf-8", "replace").strip()
        raise TransferFailed(f"{admin_url}{PATH} answers {error.code}: {said}") from None
    except (URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TransferFailed(f"The admin address {admin_url} does not answer: {reason}.") from None
    except ValueError:
        raise TransferFailed(f"{admin_url}{PATH} answers something else than a report.") from None
