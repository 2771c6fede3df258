"""Sample data: the flights that left New York on 1 January 2013, their airports, and three days of weather.

LICENCE.txt says where it comes from. The columns are those of the source, with the keys in front.
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
    """Create the three tables and fill them. Entities with the same keys are replaced."""
    for table in TABLES:
        endpoint.create_table(table)
        with closing(
            TableWriter(endpoint, table, OnConflict.REPLACE, parallel=1, reject=lambda *_: None)
        ) as writer:
            file = Path(__file__).with_name(f"{table}.csv")
            for row in read_rows(str(file), Reading(), None, ReadPosition()):
                assert isinstance(row, Row)
                writer.add(row)
            writer.drain()
            assert not writer.tally.rejected
