"""The documents match the repository: links and paths exist, generated pages are up to date.

`python docs/generate/build_site.py` in .ci/run checks the links on the site; these tests need no generator.
"""

import json
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

import advice_rules
import build_site
import commands_page
import options_page
import tablestone
from document_links import ROOT_PAGES, anchors, is_relative, targets
from server_process import clean_environment
from tablestone.cli.option_sources import read_configuration, read_option_file
from tablestone.cli.options import CONFIG_FLAG, CONFIG_VARIABLE, SERVER_OPTIONS, BrokenOption

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tablestone"

DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"]
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def broken_links(document: Path) -> list[str]:
    broken = []
    for target in filter(is_relative, targets(document.read_text(encoding="utf-8"))):
        path, _, anchor = target.partition("#")
        there = document.parent / path if path else document
        if not there.exists() or (
            anchor and anchor not in anchors(there.read_text(encoding="utf-8"))
        ):
            broken.append(target)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document: Path) -> None:
    assert broken_links(document) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c\n[a](page.md#a-b-c) [b](page.md#b) [c](#a-b-c) [d](gone.md) `[e](code.md)`\n"
    )
    assert broken_links(page) == ["page.md#b", "gone.md"]


@pytest.mark.parametrize(
    ("page", "link", "on_the_site"),
    [
        ("index.md", "[a](docs/guides/tls.md#b)", "[a](guides/tls.md#b)"),
        ("index.md", "[a](bench/README.md)", "[a](bench.md)"),
        ("index.md", "![a](docs/images/mark.svg)", "![a](images/mark.svg)"),
        ("index.md", "[a](LICENSE)", "a"),
        ("guides/tls.md", "[a](../../bench/README.md#b)", "[a](../bench.md#b)"),
        ("guides/tls.md", "[a](https://example.com/b.md)", "[a](https://example.com/b.md)"),
        ("guides/tls.md", "`[a](../../LICENSE)`", "`[a](../../LICENSE)`"),
        ("guides/tls.md", "[a](gone.md)", "[a](gone.md)"),  # for the generator to find
    ],
)
def test_a_link_on_the_site(page: str, link: str, on_the_site: str) -> None:
    source = {"index.md": "README.md"}.get(page, f"docs/{page}")
    pages = ("index.md", "bench.md", "guides/tls.md")
    assert build_site.with_links_of_the_site(link, page, source, pages) == on_the_site


PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:\.\w+|/))(?:::\w+)?`")
OUR_ROOMS = {each.name for place in (ROOT, SOURCE) for each in place.iterdir() if each.is_dir()}


def missing_paths(document: Path) -> list[str]:
    """Paths in backticks that do not exist, seen from the root, the package or the document."""
    missing = []
    for path in PATH.findall(document.read_text(encoding="utf-8")):
        room, slash, _ = path.partition("/")
        if (slash and room in OUR_ROOMS) or path.endswith(".py"):
            places = (ROOT, SOURCE, document.parent)
            if not any((place / path).exists() for place in places):
                missing.append(path)
    return missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_path_named_in_a_document_is_there(document: Path) -> None:
    assert missing_paths(document) == []


def test_a_missing_path_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`wire/gone.py` `gone.py` `tests/gone/` `model/errors.py` `tests/spec/edm.toml` `other/gone.toml`\n"
    )
    assert missing_paths(page) == ["wire/gone.py", "gone.py", "tests/gone/"]


TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def missing_tests(document: Path) -> list[str]:
    """The tests that a document names, as `tests/…/test_x.py::test_y`, and that do not exist."""
    named = TEST.findall(document.read_text(encoding="utf-8"))
    return [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists()
        or re.search(rf"^(?:async )?def {name}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE)
        is None
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_test_named_in_a_document_is_there(document: Path) -> None:
    assert missing_tests(document) == []


def test_a_missing_test_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    here = "tests/docs/test_documents.py"
    page.write_text(f"`{here}::test_a_missing_test_is_found` `{here}::test_gone` `tests/a.py::b`\n")
    assert missing_tests(page) == [f"{here}::test_gone", "tests/a.py::b"]


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = re.findall(
        r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE
    )
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(menu) == sorted([*pages, *ROOT_PAGES.values()])


def test_every_directory_of_tests_is_described() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    described = re.findall(r"^\|[^|]+\| `tests/(\w+)/` \|", page, re.MULTILINE)
    there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert sorted(described) == sorted(there - {"__pycache__"})


def test_the_changelog_starts_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[([^]]+)\]", changelog, re.MULTILINE)[0] == tablestone.__version__


def test_the_page_of_options_is_up_to_date() -> None:
    """`python docs/generate/options_page.py` writes it."""
    assert options_page.PAGE.read_text(encoding="utf-8") == options_page.page()


def test_the_page_of_commands_is_up_to_date() -> None:
    """`python docs/generate/commands_page.py` writes it. In a process of its own: click keeps the help option of a
    command as a test before this one made it.
    """
    program = "import commands_page, sys; sys.stdout.write(commands_page.page())"
    made = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(commands_page.__file__).parent,
        env=clean_environment(),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert commands_page.PAGE.read_text(encoding="utf-8") == made.stdout


def test_the_table_of_rules_is_up_to_date() -> None:
    """`python docs/generate/advice_rules.py` writes it."""
    assert advice_rules.PAGE.read_text(encoding="utf-8") == advice_rules.page()


def test_every_option_is_documented() -> None:
    page = options_page.PAGE.read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(--[a-z-]+)[^`]*`<br>`([A-Z_]+)` \|", page, re.MULTILINE)
    options = [(option.flag, option.variable) for option in SERVER_OPTIONS]
    assert documented == [*options, (CONFIG_FLAG, CONFIG_VARIABLE)]
    assert options_page.DETAILS.keys() <= {option.name for option in SERVER_OPTIONS}


def test_the_page_of_options_has_the_form_of_each_in_the_file(tmp_path: Path) -> None:
    """The file accepts `true` or a number for exactly the options that the page describes so."""
    page = options_page.PAGE.read_text(encoding="utf-8")
    file = tmp_path / "tablestone.toml"
    for line, value in (("True", "true"), ("A number", "1")):
        names = " ".join(re.findall(f"^- {line}[^:]*: (.*)$", page, re.MULTILINE))
        taken = set()
        for option in SERVER_OPTIONS:
            file.write_text(f"{option.name} = {value}", encoding="utf-8")
            with suppress(BrokenOption):
                read_option_file(file)
                taken.add(option.name)
        assert set(re.findall("`([a-z-]+)`", names)) == taken


OF_OTHER_VALUES = {
    *(
        "host",
        "port",
        "data",
        "engine",
        "account",
        "admin",
        "control",
        "explorer",
        "explorer-token-file",
        "print",
        "realism",
    ),
    *("tls-certificate", "tls-key"),
}
"""The options that other values of the Helm chart set, or that a pod has no use for."""


def test_every_option_is_a_value_of_the_chart() -> None:
    """`options` in deploy/helm/tablestone/values.schema.json rejects a misspelt option."""
    schema = json.loads((ROOT / "deploy/helm/tablestone/values.schema.json").read_text("utf-8"))
    options = {option.name for option in SERVER_OPTIONS}
    assert set(schema["properties"]["options"]["properties"]) == options - OF_OTHER_VALUES


def test_the_file_on_the_page_of_options_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tablestone.toml"
    file.write_text(options_page.EXAMPLE, encoding="utf-8")
    configuration = read_configuration({"config": str(file)}, {})
    assert [account.name for account in configuration.accounts] == ["weather", "orders"]
    assert configuration.domains == ("example.com", "example.org")


def test_every_extra_that_a_document_installs_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        extra
        for document in DOCUMENTS
        for extras in re.findall(
            r"pip install '(?:\.|\./tablestone)\[([\w,]+)\]'", document.read_text("utf-8")
        )
        for extra in extras.split(",")
    }
    assert {"metrics", "otel", "tools"} <= named <= project["optional-dependencies"].keys()


FROM_AN_INDEX = re.compile(
    r"(?:(?:pipx?|uv tool|npm|apt|apt-get) install|npm i|(?:pnpm|yarn) add|pnpm dlx|npx|uvx) "
    r"(?:--?\S+ )*'?tablestone\b(?!/|-\d)"
)
"""Installs the package by name. No index has it, and a package of that name would be somebody else's."""


@pytest.mark.parametrize("place", ["src", "tests", "examples", "bench", "docs", "deploy"])
def test_no_text_installs_the_package_from_an_index(place: str) -> None:
    files = [*(ROOT / place).rglob("*.py"), *(ROOT / place).rglob("*.md"), *ROOT.glob("*.md")]
    found = [
        f"{name_of(file)}: {match}"
        for file in files
        if not {".packages", "node_modules"} & set(file.parts) and file != Path(__file__)
        for match in FROM_AN_INDEX.findall(file.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("pip install 'tablestone[tools]'", True),
        ("pip install tablestone azure-data-tables", True),
        ("npm install --save-dev tablestone", True),
        ("npx --yes tablestone serve", True),
        ("npx ./tablestone-0.1.0.tgz serve", False),
        ("uvx --from . tablestone serve", False),
        ("pip install './tablestone[tools]'", False),
        ("pip install '.[tools]'", False),
        ("install Tablestone with its extra 'tools'", False),
    ],
)
def test_an_installation_from_an_index_is_found(text: str, *, is_found: bool) -> None:
    assert (FROM_AN_INDEX.search(text) is not None) == is_found
