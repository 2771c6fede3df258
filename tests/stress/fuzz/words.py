"""The words of the request grammar: names, keys, values, versions, forms.

`ODD_…` are mostly refused, or at the edge of a limit.
"""

from typing import Any, Final

TABLES: Final = ("Fuzz", "fuzz", "Other", "Third")
ODD_TABLES: Final = (
    "Tables",
    "tables",
    "a",
    "1abc",
    "x" * 64,
    "no-name",
    "$batch",
    "$metadata",
    "Ü",
)
KEYS: Final = ("p", "r", "0", "1", "", "a b", "ü", "'", "''", "A", "%", "+", "\U0001f600")
ODD_KEYS: Final = ("/", "\\", "#", "?", "\t", "\x7f", "x" * 1024, "x" * 1025, "\ue000", "a\nb")
NAMES: Final = ("a", "b", "n", "s", "PartitionKey", "RowKey", "Timestamp", "é", "_x", "Ab1")
ODD_NAMES: Final = ("odata.etag", "a b", "1a", "", "x" * 255, "x" * 256, "a@odata.type", "-", "xml")
TYPES: Final[dict[str, tuple[Any, ...]]] = {
    "Edm.String": ("", "x", "ü", "\0", "x" * 200, "'", "\ud83d\ude00", "]]>", "<&>"),
    "Edm.Int32": (0, -1, 2147483647, 2147483648, "5", 1.5),
    "Edm.Int64": ("0", "-9223372036854775808", "9223372036854775808", 5, " 1"),
    "Edm.Double": (1.5, "NaN", "Infinity", "-INF", -0.0, 1e308, 123456789012345678, "1e5"),
    "Edm.Boolean": (True, False, "true", "TRUE", 1),
    "Edm.DateTime": (
        "2017-01-05T03:25:45Z",
        "1601-01-01",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.9999999Z",
    ),
    "Edm.Guid": ("00000000-0000-0000-0000-00000000000A", "x"),
    "Edm.Binary": ("AAE=", "", "A", "****"),
    "Edm.GeographyPoint": ({"type": "Point", "coordinates": [1, 2]}, {"type": "Point"}, "x", [1]),
    "Edm.Nothing": (1,),
}
LITERALS: Final = (
    *(
        "'x'",
        "''",
        "5",
        "5L",
        "-9223372036854775808",
        "1.5",
        "1e400",
        "1D",
        "true",
        "false",
        "null",
        "NaN",
    ),
    *(
        "datetime'2017-01-05T03:25:45Z'",
        "datetime'x'",
        "guid'00000000-0000-0000-0000-00000000000a'",
        "X'00ff'",
    ),
    *("binary'0'", "geography'SRID=4326;POINT(1 2)'", "time'x'", "5m", "'ü'", "9" * 40),
)
OPERATORS: Final = ("eq", "ne", "gt", "ge", "lt", "le", "add", "EQ")
VERSIONS: Final = (
    "2019-02-02",
    "2020-12-06",
    "2013-08-15",
    "2011-08-18",
    "2009-09-19",
    "2026-06-06",
    "x",
    "1999-01-01",
)
ACCEPTS: Final = (
    *(
        "application/json;odata=nometadata",
        "application/json;odata=minimalmetadata",
        "application/atom+xml",
    ),
    *(
        "application/json;odata=fullmetadata",
        "application/json;odata=verbose",
        "*/*",
        "text/html",
        ",;=",
        "",
    ),
)
ETAGS: Final = (
    *(
        "*",
        "W/\"datetime'2017-01-05T03%3A25%3A45Z'\"",
        'W/"x"',
        '"x"',
        "W/\"datetime''x''\"",
        "a,b",
        "",
    ),
)
