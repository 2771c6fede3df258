"""Stand-ins for the commands on a page that change a machine: `sudo`, `systemctl` and others.

`sudo` runs the command as the test's own user. `systemctl` starts what the unit says, as systemd would, with the page's
paths inside the test's directory. The others record how they were called. The test puts them first on the path.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

SUDO = """#!/bin/sh
if [ "$1" = -u ]; then shift 2; fi
exec "$@"
"""
NOTED = '#!/bin/sh\necho "${0##*/} $*" >> "$STAND_INS/called"\n'
SYSTEMCTL = '#!/bin/sh\nexec "{python}" "{module}" systemctl "$@"\n'
JOURNALCTL = '#!/bin/sh\ntail -n 1 "$STAND_INS/tablestone.journal"\n'
SECONDS_MAX = 60.0


def put_into(directory: Path, places: dict[str, str], units: Path) -> dict[str, str]:
    """Write the stand-ins into a directory; returns the variables that they need."""
    directory.mkdir(exist_ok=True)
    texts = {"sudo": SUDO, "journalctl": JOURNALCTL}
    texts |= dict.fromkeys(("apt-get", "useradd", "chown"), NOTED)
    texts["systemctl"] = SYSTEMCTL.format(python=sys.executable, module=__file__)
    for name, text in texts.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    return {
        "STAND_INS": str(directory),
        "STAND_INS_PLACES": json.dumps(places),
        "STAND_INS_UNITS": str(units),
        "PATH": f"{directory}:{os.environ['PATH']}",
    }


class Unit:
    """A systemd unit, as far as these pages need it."""

    def __init__(self, name: str) -> None:
        self.name = name.removesuffix(".service")
        text = Path(os.environ["STAND_INS_UNITS"], f"{self.name}.service").read_text()
        places = json.loads(os.environ["STAND_INS_PLACES"])
        for here in sorted(places, key=len, reverse=True):
            text = text.replace(here, places[here])
        self.lines = re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)
        self._process = Path(os.environ["STAND_INS"], f"{self.name}.pid")

    def all_of(self, key: str) -> list[str]:
        return [value for name, value in self.lines if name == key]

    @property
    def process(self) -> int | None:
        """The id of the running process."""
        return int(self._process.read_text()) if self._process.exists() else None

    def start(self) -> int:
        own = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
        own |= dict(pair.split("=", 1) for pair in self.all_of("Environment"))
        (command,) = self.all_of("ExecStart")
        with Path(os.environ["STAND_INS"], f"{self.name}.journal").open("a") as journal:
            running = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                stdout=journal,
                stderr=journal,
                env=own,
                start_new_session=True,
            )
        if self.all_of("Type") == ["oneshot"]:
            return running.wait(SECONDS_MAX)
        self._process.write_text(str(running.pid))
        return 0

    def stop(self) -> int:
        number = self.process
        if number is None:
            return 0
        os.kill(number, signal.SIGTERM)
        end = time.monotonic() + SECONDS_MAX
        while _is_there(number) and time.monotonic() < end:
            time.sleep(0.05)
        self._process.unlink()
        return 0

    def reload(self) -> int:
        (command,) = self.all_of("ExecReload")
        words = [word.replace("$MAINPID", str(self.process)) for word in shlex.split(command)]
        return subprocess.run(words, check=False).returncode


def _is_there(number: int) -> bool:
    """Whether a process still runs; it may be a child that nobody waits for."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False


def systemctl(words: list[str]) -> int:
    """`systemctl VERB [UNIT]`; a timer is only inspected."""
    verb, *rest = [word for word in words if not word.startswith("-")]
    if verb == "daemon-reload":
        return 0
    (name,) = rest
    if name.endswith(".timer"):
        assert Path(os.environ["STAND_INS_UNITS"], name).exists()
        return 0
    unit = Unit(name)
    if verb == "is-active":
        active = unit.process is not None and _is_there(unit.process)
        print("active" if active else "inactive")
        return 0 if active else 3
    if verb == "restart":
        return unit.stop() or unit.start()
    actions = {"enable": unit.start, "start": unit.start, "stop": unit.stop, "reload": unit.reload}
    return actions[verb]()


if __name__ == "__main__":
    sys.exit(systemctl(sys.argv[2:]))
