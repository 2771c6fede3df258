"""The sizes of tables as a Tablestone server counts them in the background, or the reason why they are not known.

The protocol of the service has no size of a table, so only the admin address of a server tells one. Knows the report of
insight; knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tablestone.explorer.explored_account import ExplorerSettings
from tablestone.insight.report import InsightReport, TableSize
from tablestone.tools.insight import ask_for_insight
from tablestone.tools.refusals import TransferFailed

NOT_TOLD: Final = (
    "The protocol does not tell the sizes of tables; the admin address of a Tablestone server "
    "does (--admin)."
)
NOT_COUNTED: Final = "not counted yet"
NOT_KNOWN: Final = "size not known"


class KnownSizes(NamedTuple):
    """The sizes by the names of tables in lower case. `note` says in a sentence why some are missing; or it is empty.

    `instead` are the words in the place of a size that is missing.
    """

    sizes: Mapping[str, TableSize]
    note: str
    instead: str


def sizes_of(report: InsightReport) -> KnownSizes:
    """The sizes in a report of one account."""
    sizes = {each.table.lower(): each.size for each in report.tables if each.size is not None}
    return KnownSizes(sizes, report.sizes_note, NOT_KNOWN if report.sizes_note else NOT_COUNTED)


def known_sizes(settings: ExplorerSettings) -> KnownSizes:
    """The sizes of the tables of an account; of an endpoint without an admin address, none."""
    if settings.admin_url is None:
        return KnownSizes({}, NOT_TOLD, NOT_KNOWN)
    try:
        return sizes_of(
            ask_for_insight(settings.admin_url, account=settings.connection.account).report
        )
    except TransferFailed as failed:
        return KnownSizes({}, str(failed), NOT_KNOWN)
