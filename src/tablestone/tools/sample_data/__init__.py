"""Sample data: the flights that left New York on 1 January 2013, their airports, and three days of weather.

LICENCE.txt names the source. The columns are those of the source, after the keys.
"""

from contextlib import closing
from pathlib import Path
from typing import Final

from tablestone.tools.client import TableEndpoint
from tablestone.tools.formats.compressed import ReadPosition
from tablestone.tools.formats.reading_file import read_rows
from tablestone.tools.formats.rows import Reading, Row
from tablestone.tools.writing import OnConflict, TableWriter

TABLES: Final = ("Airports", "Flights", "Weather")


def load_sample_data(endpoint: TableEndpoint) -> None:
    """Create the three tables and fill them. Replaces entities with the same keys."""
    for table in TABLES:
        endpoint.create_table(table)
        file = Path(__file__).with_name(f"{table}.jsonl")
        writer = TableWriter(
            endpoint, table, OnConflict.REPLACE, parallel=1, reject=lambda *_: None
        )
        with closing(writer):
            for row in read_rows(str(file), Reading(), None, ReadPosition()):
                assert isinstance(row, Row)
                writer.add(row)
            writer.drain()
            assert not writer.tally.rejected
