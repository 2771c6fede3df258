"""Every command, and every page of the explorer, that reads pages: on each form that a page may have.

Each line of the two tables runs against a service with each of the forms, and finds the data. Where the pages of a
service never end, each says so in one sentence.
"""

import csv
import gc
import html
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, cycle, repeat
from typing import NamedTuple
from urllib.parse import quote

import httpx
import orjson
import pytest
from pyarrow import parquet

from explorer.test_page_guard import COOKIE, send
from server_process import ServerProcess, start_server
from tablestone.cli.command_list import DATA_TOOLS
from tablestone.explorer import application, tables
from tablestone.explorer.page_templates import PART_HEADER
from tablestone.tools import copying, exporting
from tablestone.tools.client import Operation, TableEndpoint, Walk
from tablestone.tools.connection import parse_connection_string
from tablestone.tools.errors import ServiceError
from tablestone.tools.odata import key_of
from tablestone.tools.progress import shown_entities
from tablestone.tools.retrying import ATTEMPTS_MAX
from tools.data_tools import DataTools, entity
from tools.faulty_service import (
    BUSY,
    BUSY_FOR_LONG,
    FAILED,
    NO_FAULTS,
    THROTTLED,
    THROTTLED_FOR_LONG,
    FaultyService,
    Plan,
    faulty_service,
)
from tools.page_forms import BLANK, MISSING, Form, InvalidInput, PageForms, is_page

SIZES = {"Alpha": 1, "Beta": 1, "Gamma": 1, "Paged": 2100}
TABLES = list(SIZES)
PARTITIONS = [f"p{n:02}" for n in range(21)]
ENTITIES = [entity(PARTITIONS[n // 100], f"{n:05}", n=n) for n in range(2100)]
EQUAL = "on both sides, and they are equal."


def faults_of_pages(faults: Iterator[str | None]) -> Plan:
    """A plan that gives the requests for pages these faults, one after the other."""
    return lambda _number, method, path: next(faults) if is_page(method, path) else None


class Given(NamedTuple):
    """What a service does: the forms of its pages and its faults; and where that was seen or is documented."""

    source: str
    forms: tuple[Form, ...]
    faults: tuple[str | None, ...] = (None,)


GIVEN = {
    "no row key": Given(
        "azure-sdk-for-net 19891, azure-sdk-for-js 20913, AzureStorageExplorer 5434",
        (Form(400, MISSING), Form(700, MISSING)),
    ),
    "a blank row key": Given("azure-sdk-for-go 5425", (Form(400, BLANK), Form(700, BLANK))),
    "empty pages": Given(
        "azure-storage-node 244, wire 6.6", (Form(0), Form(0, MISSING), Form(900), Form(0, BLANK))
    ),
    "1 to 1,000 rows": Given(
        "wire 6.6, wire 6.9", (Form(1), Form(1000, MISSING), Form(2), Form(999), Form(37, MISSING))
    ),
    "busy, throttled, failed": Given(
        "wire 9, auth 10",
        (Form(400), Form(700, MISSING)),
        (FAILED, None, BUSY, None, BUSY_FOR_LONG, None, THROTTLED, None, THROTTLED_FOR_LONG, None),
    ),
}
ENDLESS = {
    "a page that leads to itself": (Form(0), Form(0, MISSING, back=1)),
    "three pages in a circle": (Form(0), Form(0), Form(0, MISSING), Form(0, back=3)),
}
NO_END = (
    r"(Paged: the service|http://\S+) answered with a continuation token that it gave before, "
    r"so its (pages have|list of tables has) no end\."
)


@dataclass
class Services:
    """Two services with the same entities."""

    first: ServerProcess
    second: ServerProcess

    @contextmanager
    def shaped(
        self, forms: Sequence[Form], plan: Plan = NO_FAULTS
    ) -> Iterator[tuple[FaultyService, str]]:
        """The first one with pages of these forms; its connection string."""
        with faulty_service(self.first.address, plan, forms) as service:
            port = self.first.address[1]
            yield service, self.first.connection_string.replace(f":{port}/", f":{service.port}/")


def fill(server: ServerProcess) -> None:
    """Store what the tests expect to find."""
    with TableEndpoint(parse_connection_string(server.connection_string)) as endpoint:
        for name in TABLES:
            endpoint.create_table(name)
            found = ENTITIES if name == "Paged" else [entity("p", name)]
            for start in range(0, len(found), 100):
                part = [(key_of(raw), orjson.dumps(raw)) for raw in found[start : start + 100]]
                endpoint.transact(name, [Operation("PUT", key, body) for key, body in part])


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    servers = [
        start_server(tmp_path_factory.mktemp(name), "--workers", "1")
        for name in ("first", "second")
    ]
    for server in servers:
        fill(server)
    yield Services(*servers)
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablestone.tools.retrying.FIRST_PAUSE_SECONDS", 0.001)


def lines(tools: DataTools, words: list[str]) -> list[str]:
    return tools.run(*words).lines


def first_line(tools: DataTools, words: list[str]) -> str:
    return tools.run(*words).lines[0]


def entities(tools: DataTools, words: list[str]) -> object:
    return tools.run(*words).entities


def sizes(tools: DataTools, words: list[str]) -> object:
    """The tables, and how many entities each has."""
    return [line.split("\t")[:2] for line in tools.run(*words).lines]


def cost(tools: DataTools, words: list[str]) -> str:
    """The entities in the last line of an explanation, without the number of requests, which depends on the forms."""
    return tools.run(*words).stderr.splitlines()[-1].split(", ")[1]


def written(tools: DataTools, words: list[str]) -> object:
    """The values of n in an exported file."""
    path = tools.directory / words[2]
    tools.run(*words[:2], path, *words[3:])
    if path.suffix == ".parquet":
        return parquet.read_table(path)["n"].to_pylist()
    with path.open() as file:
        if path.suffix == ".csv":
            return [int(row["n:Int32"]) for row in csv.DictReader(file)]
        return [orjson.loads(line)["n"] for line in file]


def left(tools: DataTools, words: list[str]) -> object:
    """The first line that a command prints, and how many entities the table has afterwards."""
    return tools.run(*words).lines[0], len(tools.all_of("Paged"))


def verified(tools: DataTools, words: list[str]) -> object:
    """The line in which a copy says what both sides have."""
    return [line for line in tools.run(*words).lines if "Verified" in line]


def verified_in_an_empty_table(tools: DataTools, words: list[str]) -> object:
    target = words[words.index("--to") + 1]
    tools.run("clear", "Paged", "--yes", "--connection-string", target)
    return verified(tools, words)


def completed(tools: DataTools, words: list[str]) -> object:
    """The completions of the last word in a shell."""
    return tools.complete(shlex.join(["tablestone", *words]))


def failed(tools: DataTools, words: list[str]) -> str:
    """The last line of a command that fails."""
    return tools.run(*words, status=1).stderr.splitlines()[-1]


class Case(NamedTuple):
    """A command, and what it should find. SHAPED and OTHER are the two services, FILE has the entities."""

    words: str
    looked_at: Callable[[DataTools, list[str]], object]
    found: object


COMMANDS = [
    Case("tables", lines, TABLES),
    Case("tables --sizes", sizes, [[name, shown_entities(SIZES[name])] for name in TABLES]),
    Case("count Pa", completed, ["Paged"]),
    Case("count Paged", lines, ["2100"]),
    Case("count Paged --filter 'n ge 2000'", lines, ["100"]),
    Case("count Paged --by PartitionKey", lines, [f"100\t{each}" for each in PARTITIONS]),
    Case("query Paged", entities, ENTITIES),
    Case("query Paged --top 1500", entities, ENTITIES[:1500]),
    Case("query Paged --filter 'n ge 2000'", entities, ENTITIES[2000:]),
    Case("query Paged --order-by 'n desc' --top 3", entities, ENTITIES[:-4:-1]),
    Case("query Paged --newest --top 3", entities, ENTITIES[:-4:-1]),
    Case("query Paged --contains RowKey=0000", entities, ENTITIES[:10]),
    Case("query Paged --count", lines, ["2100"]),
    Case("query Paged --distinct PartitionKey", lines, PARTITIONS),
    Case("query Paged --explain", cost, "2,100 entities received for 2,100 shown"),
    Case("partitions Paged", lines, PARTITIONS),
    Case("export Paged -", entities, ENTITIES),
    Case("export Paged out.jsonl", written, list(range(2100))),
    Case("export Paged out.csv --filter 'n ge 2000'", written, list(range(2000, 2100))),
    Case("export Paged out.parquet", written, list(range(2100))),
    Case("import FILE Paged --on-conflict skip", left, ("0 entities stored in Paged, 0 B.", 2100)),
    Case("delete Paged --filter 'n ge 2000' --dry-run", lines, ["100 entities would be deleted."]),
    Case("delete Paged --filter 'n ge 2000' --yes", left, ("100 entities deleted.", 2000)),
    Case("clear Paged --yes", left, ("2,100 entities deleted.", 0)),
    Case("diff SHAPED OTHER Paged", lines, [f"Paged: 2,100 entities {EQUAL}"]),
    Case(
        "diff OTHER SHAPED",
        lines,
        [f"{name}: {shown_entities(SIZES[name])} {EQUAL}" for name in TABLES],
    ),
    Case(
        "copy --from SHAPED --to OTHER Paged",
        verified_in_an_empty_table,
        [f"  Verified: 2,100 entities {EQUAL}"],
    ),
    Case("copy --from OTHER --to SHAPED Paged", verified, [f"  Verified: 2,100 entities {EQUAL}"]),
    Case(
        "copy --from SHAPED --to OTHER",
        verified,
        [f"  Verified: {shown_entities(SIZES[name])} {EQUAL}" for name in TABLES],
    ),
]
"""Every command that reads pages, in each way in which it does."""
WITHOUT_PAGES = {
    *("get", "put", "merge", "delete-entity"),
    *("explore", "profile", "completion"),
    "changes",  # its pages are those of the feed: test_changes.py
}


def run(case: Case, services: Services, tools: DataTools, connection_string: str) -> object:
    """Run the command against this service; returns what it found. The data is the same afterwards."""
    tools.connection_string = connection_string
    words = {"FILE": str(tools.write_lines("entities.jsonl", ENTITIES))}
    places = {"SHAPED": connection_string, "OTHER": services.second.connection_string}
    for name, place in places.items():
        (tools.directory / name).write_text(place)
        words[name] = f"@{tools.directory / name}"
    try:
        return case.looked_at(tools, [words.get(each, each) for each in shlex.split(case.words)])
    finally:
        if case.looked_at in (left, verified_in_an_empty_table):
            fill(services.first)
            fill(services.second)


@pytest.mark.slow
@pytest.mark.parametrize("given", GIVEN.values(), ids=list(GIVEN))
@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case.words)
def test_a_command_finds_what_is_there(
    services: Services, tools: DataTools, case: Case, given: Given
) -> None:
    plan = faults_of_pages(cycle(given.faults))
    with services.shaped(given.forms, plan) as (service, connection_string):
        assert run(case, services, tools, connection_string) == case.found
        assert service.shaped_pages > 1


@pytest.mark.parametrize(
    "target",
    [
        "/a/T()?NextPartitionKey=1!4!cA--&NextRowKey=",
        "/a/T()?NextPartitionKey=&NextRowKey=1!4!cA--",
        "/a/T()?NextPartitionKey=&NextRowKey=",
        "/a/T()?NextPartitionKey=",
        "/a/T()?NextPartitionKey=1!4!cA--",
        "/a/Tables?NextTableName=",
    ],
)
def test_the_service_refuses_what_is_blank_or_was_never_given(target: str) -> None:
    """As Azure does: AzureStorageExplorer 5434, 5579, 5584."""
    with pytest.raises(InvalidInput):
        PageForms([Form()]).asked("GET", target)


def test_every_command_has_its_case() -> None:
    named = {case.words.partition(" ")[0] for case in COMMANDS}
    assert named == {command.name for command in DATA_TOOLS} - WITHOUT_PAGES


@pytest.mark.slow
@pytest.mark.parametrize("forms", ENDLESS.values(), ids=list(ENDLESS))
@pytest.mark.parametrize(
    "case",
    # A shell gets no message. An import reads only a few pages, and then asks for each entity.
    [case for case in COMMANDS if case.looked_at is not completed and "import" not in case.words],
    ids=lambda case: case.words,
)
def test_a_command_says_that_pages_have_no_end(
    services: Services, tools: DataTools, case: Case, forms: tuple[Form, ...]
) -> None:
    with services.shaped(forms) as (service, connection_string):
        told = run(case._replace(looked_at=failed), services, tools, connection_string)
        assert re.fullmatch(rf"tablestone: {NO_END}( The same command continues\.)?", str(told))
        assert service.shaped_pages < 100  # pages are read ahead


@pytest.mark.parametrize("before", [0, 1, 6, 64, 1000])
@pytest.mark.parametrize("pages", [1, 2, 3, 100])
def test_a_circle_of_any_length_is_found(before: int, pages: int) -> None:
    """After any number of pages; a walk without a cycle goes on."""
    walk = Walk()
    assert not any(walk.is_back_at(n) for n in range(before + pages))
    again = [walk.is_back_at(before + n % pages) for n in range(3 * (before + pages))]
    assert True in again


@pytest.mark.parametrize(
    ("words", "forms", "is_written"),
    [
        ("diff OTHER SHAPED Paged", (Form(1), Form(1, back=1)), True),
        ("copy --from OTHER --to SHAPED Paged", (Form(1), Form(1, back=1)), True),
        ("copy --from SHAPED --to OTHER Paged --on-conflict merge", (Form(100),), False),
    ],
)
def test_a_command_that_fails_reads_no_further(
    services: Services,
    tools: DataTools,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    forms: tuple[Form, ...],
    is_written: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    """Its threads end with it, and not with the next garbage collection, which may happen on any thread."""

    def refuse(*_: object) -> None:
        raise ServiceError(403, "AuthorizationPermissionMismatch", "")

    if not is_written:
        monkeypatch.setattr(TableEndpoint, "transact", refuse)
    gc.collect()
    gc.disable()
    try:
        with services.shaped(forms) as (_, connection_string):
            run(Case(words, failed, None), services, tools, connection_string)
        assert not [each for each in threading.enumerate() if each.name.startswith("read")]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("length", "status", "told"),
    [
        (60_000, 0, ""),
        # The service refuses the request, because its first line is too long.
        (65_490, 1, "tablestone: Paged: HTTP status 414\n"),
    ],
)
def test_a_long_token_is_sent_as_it_came(
    services: Services, tools: DataTools, length: int, status: int, told: str
) -> None:
    with services.shaped((Form(700, MISSING, length=length),)) as (_, connection_string):
        tools.connection_string = connection_string
        assert tools.run("count", "Paged", status=status).stderr == told


@pytest.mark.parametrize("words", ["export Paged out.jsonl", "copy --from SHAPED --to OTHER Paged"])
def test_a_token_without_a_row_key_is_kept_for_the_next_run(
    services: Services, tools: DataTools, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """The journal has it as earlier releases wrote it, and they sent it back as `NextRowKey=`."""
    monkeypatch.setattr(exporting, "PAGES_PER_CHECKPOINT", 1)
    monkeypatch.setattr(copying, "PAGES_PER_CHECKPOINT", 1)
    monkeypatch.chdir(tools.directory)
    plan = faults_of_pages(chain([None] * 4, [FAILED] * ATTEMPTS_MAX, repeat(None)))
    with services.shaped((Form(300, MISSING),), plan) as (service, connection_string):
        run(Case(words, failed, None), services, tools, connection_string)
        (journal,) = (tools.directory / "journals").glob("*.json")
        state = orjson.loads(journal.read_bytes())["state"]
        token = state.get("tables", {}).get("Paged", state)["token"]
        assert (token[0][:2], token[1:]) == ("1!", [""])
        service.targets.clear()
        run(Case(words, lines, None), services, tools, connection_string)
        entities_asked = [target for target in service.targets if "Paged()" in target]
        assert entities_asked[0].endswith(f"?NextPartitionKey={quote(token[0])}")


def open_page(connection_string: str, path: str) -> httpx.Response:
    """An explorer's answer for this service."""
    connection = parse_connection_string(connection_string)
    headers = {"cookie": COOKIE, PART_HEADER: "1"}
    return send("GET", path, headers, connection=connection)


def shown(connection_string: str, path: str) -> str:
    answer = open_page(connection_string, path)
    assert answer.status_code == 200, answer.text
    return answer.text


def tables_shown(connection_string: str, path: str) -> object:
    return re.findall(r"<bdi>(\w+)</bdi></a>", shown(connection_string, path))


def rows_shown(connection_string: str, path: str) -> object:
    """The rows of the grid, read piece by piece, as by a browser that scrolls to the end."""
    rows: list[str] = []
    while path:
        text = shown(connection_string, path)
        rows += re.findall(r'href="/tables/Paged/entity\?pk=\w+&amp;rk=(\w+)"', text)
        path = html.unescape(re.findall(r'data-following="([^"]*)"', text)[0])
    return rows


def counted(connection_string: str, path: str) -> object:
    """What the page says about the size of a table, after all of its links to continue the count."""
    while True:
        text = shown(connection_string, path)
        further = re.findall(r'size\.further" href="([^"]+)"', text)
        if not further:
            return re.findall(r'data-entities="(\d+)"', text)
        path = html.unescape(further[0])


def downloaded(connection_string: str, path: str) -> object:
    return [orjson.loads(line)["RowKey"] for line in shown(connection_string, path).splitlines()]


class Explored(NamedTuple):
    """A page of the explorer, and what should be on it or in its file. `form` of a path is its route."""

    route: str
    query: str
    looked_at: Callable[[str, str], object]
    found: object

    @property
    def path(self) -> str:
        return self.route.replace("{table}", "Paged") + self.query


ROW_KEYS = [each["RowKey"] for each in ENTITIES]
EXPLORED = [
    Explored("/", "", tables_shown, TABLES),
    Explored("/tables/{table}", "", rows_shown, ROW_KEYS),
    Explored("/tables/{table}", "?top=250", rows_shown, ROW_KEYS[:250]),
    Explored("/tables/{table}", "?filter=n+ge+2000", rows_shown, ROW_KEYS[2000:]),
    Explored("/tables/{table}", "?order=n+desc&top=250", rows_shown, ROW_KEYS[:-251:-1]),
    Explored("/tables/{table}/size", "", counted, ["2100"]),
    Explored("/tables/{table}/download", "?kind=jsonl", downloaded, ROW_KEYS),
    Explored("/tables/{table}/download", "?top=1500", downloaded, ROW_KEYS[:1500]),
    Explored("/tables/{table}/download", "?order=n+desc", downloaded, ROW_KEYS[::-1]),
]
"""Every page that reads pages of the service; the first one leads to `/tables/{table}/rows`."""
WITHOUT_PAGES_OF_THE_SERVICE = {
    *("/tables/{table}/rows", "/tables/{table}/build", "/tables/{table}/complete"),
    *("/tables/{table}/entity", "/tables/{table}/export", "/tables/{table}/policies"),
    *("/tables/{table}/heat", "/heat", "/service", "/signature", "/tables/{table}/forget"),
    *("/tables/{table}/changes", "/tables/{table}/changes/wait", "/tables/{table}/indexes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("given", GIVEN.values(), ids=list(GIVEN))
@pytest.mark.parametrize("page", EXPLORED, ids=lambda page: page.path)
def test_the_explorer_shows_what_is_there(
    services: Services, page: Explored, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "COUNT_SECONDS_MAX", 0.0)
    # The list of tables is requested once: a person can ask again.
    faults = (None,) if page.route == "/" else given.faults
    with services.shaped(given.forms, faults_of_pages(cycle(faults))) as (service, place):
        assert page.looked_at(place, page.path) == page.found
        assert service.shaped_pages > 1


@pytest.mark.slow
@pytest.mark.parametrize("page", EXPLORED, ids=lambda page: page.path)
def test_the_explorer_says_that_pages_have_no_end(services: Services, page: Explored) -> None:
    with services.shaped(ENDLESS["a page that leads to itself"]) as (service, place):
        answer = open_page(place, page.path)
        assert answer.status_code == 502
        assert re.search(NO_END, html.unescape(answer.text))
        assert service.shaped_pages < 20


@pytest.mark.parametrize("path", ["/tables/Paged", "/tables/Paged/size"])
@pytest.mark.parametrize(("length", "status"), [(8_000, 200), (65_490, 502)])
def test_the_explorer_says_that_a_token_is_too_long_for_an_address(
    services: Services, monkeypatch: pytest.MonkeyPatch, path: str, length: int, status: int
) -> None:
    monkeypatch.setattr(tables, "COUNT_SECONDS_MAX", 0.0)
    with services.shaped((Form(700, MISSING, length=length),)) as (_, place):
        answer = open_page(place, path)
    assert answer.status_code == status
    told = "The service gives a continuation token that no address can hold." in answer.text
    assert told == (status != 200)


def test_every_page_of_the_explorer_has_its_case() -> None:
    named = {page.route for page in EXPLORED}
    assert named == set(application.SHOWN) - WITHOUT_PAGES_OF_THE_SERVICE
