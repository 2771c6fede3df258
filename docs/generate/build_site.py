"""The documents as a site: `python docs/generate/build_site.py`; with `serve`, on this machine's port 8000.

The generator reads one directory. So the pages are copied to build/pages, and those that stand outside docs/ join them.
In the repository, links are relative to the file, as GitHub reads them; here, README.md is the first page and
bench/README.md another one. A link to a file that is no page of the site, such as a source file, becomes its text.
"""

import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

from document_links import LINK, ROOT_PAGES, is_relative

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ROOT / "build" / "pages"
"""`docs_dir` of mkdocs.yml."""

BUILD: Final = ("build", "--strict", "--clean")
"""A link or an anchor that leads nowhere ends the build with status 1."""

OUTSIDE_THE_SEARCH: Final = ("contributing.md", "testing.md", "releasing.md", "decisions/")
"""Who looks for a word uses Tablestone. Its own tests, releases and decisions would come first, because the generator
has no weights. The menu and other pages lead to them."""


def write_pages() -> None:
    """Make the directory that the generator reads."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("generate"))
    pages = {path.relative_to(PAGES).as_posix(): path for path in PAGES.rglob("*.md")}
    sources = {page: f"docs/{page}" for page in pages} | {
        page: source for source, page in ROOT_PAGES.items()
    }
    for page, source in sources.items():
        markdown = (ROOT / source).read_text(encoding="utf-8")
        head = "---\nsearch:\n  exclude: true\n---\n" if page.startswith(OUTSIDE_THE_SEARCH) else ""
        (PAGES / page).write_text(
            head + with_links_of_the_site(markdown, page, source, sources.keys()), encoding="utf-8"
        )


def with_links_of_the_site(markdown: str, page: str, source: str, pages: Collection[str]) -> str:
    """A document of the repository, as a page of the site."""

    def replaced(link: re.Match[str]) -> str:
        target = link["target"]
        if link["code"] or target.startswith("#") or not is_relative(target):
            return link[0]
        path, hash_mark, anchor = target.partition("#")
        named = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        leads_to = ROOT_PAGES.get(named, named.removeprefix("docs/"))
        if leads_to not in pages and not (ROOT / "docs" / leads_to).is_file():
            return link["text"] if (ROOT / named).exists() else link[0]
        relative = posixpath.relpath(leads_to, posixpath.dirname(page) or ".")
        return f"[{link['text']}]({relative}{hash_mark}{anchor})"

    return LINK.sub(replaced, markdown)


if __name__ == "__main__":
    write_pages()
    generator = [sys.executable, "-m", "zensical", *(sys.argv[1:] or BUILD)]
    sys.exit(subprocess.run(generator, cwd=ROOT, check=False).returncode)
