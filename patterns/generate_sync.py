"""Make the half without asyncio, `table_patterns/sync`, of the half with it: `python patterns/generate_sync.py`.

`--check`: write nothing, and exit with 1 if the files are not those of today. Needs unasync (the extra `dev`).
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import unasync

PACKAGE = Path(__file__).parent / "src/table_patterns"
NAMES = {"asyncio": "time", "aio": "sync", "anext": "next", "aiter": "iter"}


def made(directory: Path) -> dict[str, str]:
    """The files by name, formatted."""
    (directory / "aio").mkdir()
    sources = sorted((PACKAGE / "aio").glob("*.py"))
    for path in sources:
        text = path.read_text(encoding="utf-8")
        text = text.replace("azure.data.tables.aio", "azure.data.tables")
        text = text.replace("The patterns on the asyncio client", "The patterns on the client")
        (directory / "aio" / path.name).write_text(text, encoding="utf-8")
    rule = unasync.Rule("/aio/", "/sync/", additional_replacements=NAMES)
    unasync.unasync_files([str(directory / "aio" / path.name) for path in sources], [rule])
    written = directory / "sync"
    configuration = ["--config", str(PACKAGE.parents[2] / "pyproject.toml")]
    for command in (["check", "--select", "I", "--fix"], ["format"]):
        subprocess.run(["ruff", *command, "--quiet", *configuration, written], check=True)
    return {path.name: path.read_text(encoding="utf-8") for path in written.glob("*.py")}


def main() -> int:
    with TemporaryDirectory() as directory:
        files = made(Path(directory))
    target = PACKAGE / "sync"
    stored = {path.name: path.read_text(encoding="utf-8") for path in target.glob("*.py")}
    if "--check" in sys.argv:
        return int(files != stored)
    target.mkdir(exist_ok=True)
    for name in stored.keys() - files.keys():
        (target / name).unlink()
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
