"""The heat map of a table: what was read and written, by key range and time, and no more than is known."""

from operator import add

from tablestone.insight.report import NOW
from unit.insight.test_insight_counts import get, page, query, record_of
from unit.insight.test_insight_history import Server, partitions_of


def test_one_table_has_heat_maps() -> None:
    """The sums of a column are those of the table; a hot key is alone; a full scan belongs to no range."""
    server = Server(workers=1)
    count = server.workers[0].counts.count
    for number in range(300):
        count(get(f"k{number:03}"))
    for _ in range(500):
        count(get("k150"))
    server.pass_by(61)
    count(record_of(query(None), page("table", 640)))
    count(get("x", table="Other"))
    server.second()
    assert all(table.heat is None for table in server.report().tables)
    (table,) = server.report(only="readings").tables
    assert table.heat is not None
    heat = table.heat.hour
    firsts = [each.first for each in heat.ranges]
    assert firsts == sorted(firsts)
    assert len(firsts) <= 64
    hot = next(place for place, each in enumerate(heat.ranges) if each.first == "k150")
    assert heat.ranges[hot].last == "k150"
    earlier, present = heat.read[-2], heat.read[-1]
    assert (sum(earlier), sum(present)) == (800, 0)
    assert earlier[hot] == max(earlier) == 501
    assert heat.scanned[-2:] == (0, 640)
    placed = map(sum, heat.read)
    assert tuple(map(add, placed, heat.scanned)) == table.hour.entities
    assert sum(map(sum, heat.written)) == 0


def test_a_heat_map_counts_in_a_range_only_what_was_read_there() -> None:
    """Scans of a table whose largest partition is `b`; some of their pages stay inside it."""
    server = Server(workers=1)
    count = server.workers[0].counts.count
    for key in ("a", "b", "c"):
        count(get(key))
    for _ in range(5):
        count(record_of(query("n gt 1"), page("table", 900, "ab", token="b")))
        count(record_of(query("n gt 1", token="b"), page("table", 1000, "bb", token="b")))
        count(record_of(query("n gt 1", token="b"), page("table", 200, "bc")))
    server.second()
    (table,) = server.report(only="readings").tables
    assert table.heat is not None
    heat = table.heat.hour
    assert [each.first for each in heat.ranges] == ["a", "b", "c"]
    assert (heat.read[-1], heat.scanned[-1]) == ((1, 5001, 1), 5 * 1100)
    reads = {key: each.activity.reads for key, each in partitions_of(server.report(), NOW).items()}
    assert reads == {"a": 1, "b": 1, "c": 1}


def test_a_heat_map_has_no_row_for_a_key_of_which_nothing_was_read() -> None:
    """A table that is only scanned has no ranges: a row "(empty)" would be a partition that nobody asked for."""
    server = Server(workers=1)
    count = server.workers[0].counts.count
    count(record_of(query(None), page("table", 640)))
    count(record_of(query("PartitionKey eq ''"), page("partition", 0)))
    server.second()
    (table,) = server.report(only="readings").tables
    assert table.heat is not None
    assert table.heat.hour.ranges == ()
    assert table.heat.hour.scanned[-1] == 640
