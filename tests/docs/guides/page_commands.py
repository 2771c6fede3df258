"""Runs the commands of a guide in order, in one shell; each must print what the page says.

A page shows commands as a person types them: in `console` blocks, after `$ `, and continued after `> `. Below a command
is its output, where `…` stands for any text. A server that a page starts runs until the page ends; its log is left out.
The test uses another port in place of 10002.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from server_process import clean_environment, free_ports

ROOT = Path(__file__).parents[3]
GUIDES = ROOT / "docs" / "guides"
SECONDS_MAX = 900.0
READY_SECONDS_MAX = 180
PORT, ADMIN_PORT = 10002, 10003

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SERVER = re.compile(r"tablestone (?:serve|azurite|azurite-table|demo)\b")
_READY = r"Connection string: \|Table endpoint: .*ACCOUNT\|ends the demo"
_FRAME = re.compile(r"^<<<(\d+) (\S+)>>>$\n", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """A command as it is typed, and the output that the page shows."""

    typed: str
    shown: str

    @property
    def is_server(self) -> bool:
        return _SERVER.match(self.typed) is not None and not self.typed.endswith("&")


def commands_of(page: str) -> list[Command]:
    """The commands of a page, in order."""
    found = []
    for block in _BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *lines = part.splitlines()
            typed = [first]
            while lines and lines[0].startswith("> "):
                typed.append(lines.pop(0)[2:])
            found.append(Command("\n".join(typed), "".join(f"{line}\n" for line in lines)))
    return found


def fits(shown: str, printed: str) -> bool:
    """Whether a command printed what the page shows, which may be nothing."""
    pattern = ".*?".join(re.escape(piece) for piece in shown.split("…"))
    return not shown or re.fullmatch(pattern, printed, re.DOTALL) is not None


def run_page(
    page: str,
    directory: Path,
    *,
    places: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run the commands of a page in `directory`; an `AssertionError` names the first one with another result.

    `places` maps texts of the page, such as paths, to those of the test.
    """
    ports = free_ports(2)
    instead = {str(PORT): str(ports[0]), str(ADMIN_PORT): str(ports[1])} | dict(places or {})
    commands = [Command(_put(each.typed, instead), each.shown) for each in commands_of(page)]
    assert commands
    ran = subprocess.run(
        ["bash", "-c", _script(commands)],
        cwd=directory,
        env=clean_environment()
        | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TABLESTONE_PORT": str(ports[0]),
        }
        | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    back = {there: here for here, there in instead.items()}
    frames = _FRAME.split(ran.stdout)[1:]
    outputs = {int(n): (status, text) for n, status, text in zip(*[iter(frames)] * 3, strict=True)}
    for number, command in enumerate(commands):
        assert number in outputs, f"{command.typed}\n{ran.stdout}"
        status, printed = outputs[number]
        lines = _put(printed.removesuffix("\n"), back).splitlines()
        printed = "".join(f"{line.rstrip()}\n" for line in lines)
        assert status == "0", f"$ {command.typed}\nexit status {status}\n{printed}"
        assert fits(command.shown, printed), f"$ {command.typed}\n{printed}"


def _put(text: str, instead: Mapping[str, str]) -> str:
    """The text with every place replaced, longest first."""
    if not instead:
        return text
    words = sorted(instead, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, words)), lambda found: instead[found[0]], text)


def _script(commands: list[Command]) -> str:
    """A shell script that frames the output of each command with its number and exit status."""
    lines = [
        "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT",
        "printed=$(mktemp -d)",
        "ready() {",
        f"    for _ in $(seq {READY_SECONDS_MAX * 10}); do",
        f"        if grep -q '{_READY}' \"$2\"; then sleep 0.2; return 0; fi",
        '        kill -0 "$1" 2>/dev/null || return 1',
        "        sleep 0.1",
        "    done",
        "    return 1",
        "}",
    ]
    for number, command in enumerate(commands):
        output = f'"$printed/{number}"'
        if command.is_server:
            lines += [f"{command.typed} >{output} 2>{output}.log &"]
            lines += [f"ready $! {output} || {{ cat {output}.log; false; }}"]
        else:
            lines += [f"{{ {command.typed}", f"}} >{output} 2>&1"]
        lines += [f'printf "<<<{number} %s>>>\\n" $?', f"cat {output}", "echo"]
    return "\n".join(lines)
