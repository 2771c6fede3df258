"""Runs a command on a throw-away PostgreSQL server: `python -m tests.storage.on_postgresql pytest tests/storage/…`.

ENGINE_UNDER_TEST names the server for the command; POSTGRESQL chooses its version, and POSTGRESQL_DELAY_MS delays each
message to it. Exits as the command does, or with 2 if there is no server.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from storage.postgresql_server import Proxy, running_server, why_not


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    if (reason := why_not()) is not None:
        print(f"{reason}.", file=sys.stderr)
        return 2
    with running_server(max_connections="500") as port:
        proxy = Proxy(port, delay_seconds=float(os.environ.get("POSTGRESQL_DELAY_MS", "0")) / 1000)
        reached = proxy.port if proxy.delay_seconds else port
        url = f"postgresql://postgres@127.0.0.1:{reached}/postgres?schema={{fresh}}"
        environment = os.environ | {"ENGINE_UNDER_TEST": url}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
