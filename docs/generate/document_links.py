"""Links of a Markdown document and the anchors of its headings, as GitHub and the site read them.

Knows text only: it reads no file and needs no generator.
"""

import re
from typing import Final

ROOT_PAGES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "bench/README.md": "bench.md",
}
"""Where a document of the repository stands in the site, if it is not below docs/."""

LINK: Final = re.compile(
    r"(?P<code>```.*?```|``.+?``|`[^`]*`)|\[(?P<text>[^]\[]+)\]\((?P<target>[^)\s]+)\)", re.DOTALL
)
"""An inline link; code, in which there are none, is matched first."""
_FENCED: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
_EXPLICIT: Final = re.compile(r'<a (?:id|name)="([^"]+)">')
_ELSEWHERE: Final = ("https://", "http://", "mailto:")


def is_relative(target: str) -> bool:
    """Whether a link leads to a file of this repository, or to a place in its own document."""
    return not target.startswith(_ELSEWHERE)


def targets(markdown: str) -> list[str]:
    """Where the inline links of a document lead, in their order."""
    return [link["target"] for link in LINK.finditer(markdown) if not link["code"]]


def anchors(markdown: str) -> set[str]:
    """The anchors of a document: those of its headings, and those that it names itself."""
    text = _FENCED.sub("", markdown)
    found: set[str] = set(_EXPLICIT.findall(text))
    for heading in _HEADING.findall(text):
        slug = _slug(heading)
        number = 0
        while slug in found:
            number += 1
            slug = f"{_slug(heading)}-{number}"
        found.add(slug)
    return found


def _slug(heading: str) -> str:
    """GitHub's: the text of the heading in lower case, without punctuation, with hyphens in the place of blanks."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
