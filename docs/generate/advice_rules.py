"""The table of rules in docs/guides/key-design.md, from the rules themselves: `python docs/generate/advice_rules.py`.

Knows the marks around the table and the form of its rows. tests/docs compares the page with what this module makes.
"""

from pathlib import Path
from typing import Final

from tablestone.advice.advising import ACCOUNT_RATE, RULES
from tablestone.advice.rule import Rule

PAGE: Final = Path(__file__).parents[1] / "guides" / "key-design.md"
BEGIN: Final = "<!-- The rules: python docs/generate/advice_rules.py -->\n"
END: Final = "<!-- The end of the rules. -->\n"
_HEADER: Final = "| rule | when | sources |\n|---|---|---|\n"


def table() -> str:
    """All rules as rows: the id and the title, the condition in words, the sources."""
    return _HEADER + "".join(_row(rule) for rule in (*RULES, ACCOUNT_RATE))


def _row(rule: Rule) -> str:
    sources = ", ".join(f"[{each.title}]({each.url})" for each in rule.sources)
    return f"| `{rule.id}`: {rule.title} | {rule.when} | {sources} |\n"


def page() -> str:
    """The page with the present table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
