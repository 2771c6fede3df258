"""Look for known vulnerabilities in what users install: `python -m tests.deploy.supply_chain`.

pip-audit asks the Python Package Index for advisories on every package that a server or the data tools import, in the
version installed here. Exits with 0 if there are none, with 1 if a package has one, with 2 without pip-audit, and with
77 if no package could be looked up.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from command_lines import missing_auditor
from deploy.supply_chain.advisories import report
from deploy.supply_chain.installed_packages import needed_by_users


def main(arguments: list[str]) -> int:
    argparse.ArgumentParser(
        prog="python -m tests.deploy.supply_chain", description=__doc__
    ).parse_args(arguments)
    if (reason := missing_auditor()) is not None:
        print(f"{reason}.", file=sys.stderr)
        return 2
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as packages:
        packages.writelines(f"{name}=={number}\n" for name, number in needed_by_users().items())
        packages.flush()
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip"),
                *("--requirement", packages.name, "--format", "json"),
                *("--progress-spinner", "off"),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    status, lines = report(ended.stdout, ended.stderr)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
