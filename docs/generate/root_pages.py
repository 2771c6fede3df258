"""A hook of MkDocs: the documents that stand outside docs/ become pages of the site, and links follow them.

In the repository, links are relative to the file, as GitHub reads them. In the site, README.md is the first page and
bench/README.md another one. A link to a file that is not a page of the site, such as a source file, becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, Files

from document_links import LINK, ROOT_PAGES, is_relative

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
_SOURCES: Final = {page: source for source, page in ROOT_PAGES.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from outside docs/."""
    for source, page in ROOT_PAGES.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' own
    """The page's text with links that lead to pages of the site."""
    place = page.file.src_uri
    source = _SOURCES.get(place, f"docs/{place}")

    def replaced(link: re.Match[str]) -> str:
        target = link["target"]
        if link["code"] or target.startswith("#") or not is_relative(target):
            return link[0]
        path, hash_mark, anchor = target.partition("#")
        named = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        leads_to = ROOT_PAGES.get(named, named.removeprefix("docs/"))
        if files.get_file_from_path(leads_to) is None and (ROOT / named).exists():
            return link["text"]
        relative = posixpath.relpath(leads_to, posixpath.dirname(place) or ".")
        return f"[{link['text']}]({relative}{hash_mark}{anchor})"

    return LINK.sub(replaced, markdown)
