"""What the folder is made of: the licences of every bundled package, and a bill of materials in CycloneDX's form.

A file that PyInstaller collected belongs to a Python package, by the package's own list of files, or to a package of
Debian, by dpkg's.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final, NamedTuple

LICENCES: Final = re.compile(r"(?i).*\b(licen[cs]e|copying|notice|authors|sboms?)\b.*")
"""A package's own files that belong beside it; some wheels have bills of what is compiled into them."""
LICENCES_ELSEWHERE: Final = Path(__file__).with_name("licenses")
"""Those that their wheel does not bring."""


class Package(NamedTuple):
    """A bundled package, and its files to keep."""

    kind: str
    name: str
    version: str
    licence: dict[str, Any]
    """As CycloneDX writes it."""
    files: tuple[Path, ...]


def bundled(sources: Iterable[Path]) -> Iterator[Package]:
    """The packages that these files come from. `LookupError` if a file comes from none."""
    left = {source.resolve() for source in sources}
    for package in distributions():
        files = {Path(str(package.locate_file(file))).resolve() for file in package.files or ()}
        if files & left:
            yield from map(
                _of_wheel, {each for each in files & left if each.parent.suffix == ".libs"}
            )
            left -= files
            yield _of_python(package, files)
    yield from _of_debian(left)


def _of_python(package: Distribution, files: Iterable[Path]) -> Package:
    said = package.metadata
    named = [each for each in said.get_all("Classifier", ()) if each.startswith("License ::")]
    # A classifier is less exact than `License`, where some have the whole text.
    name, _, text = (said["License"] or "").partition("\n")
    if named and (text or not name):
        name = named[0].rpartition(" :: ")[2]
    expression = said["License-Expression"]
    licence = {"expression": expression} if expression else _named(name)
    kept = [
        file
        for file in files
        if LICENCES.fullmatch("/".join(file.parts[-3:])) and ".dist-info" in str(file)
    ]
    kept += LICENCES_ELSEWHERE.glob(f"{package.name}/*")
    return Package("pypi", package.name, package.version, licence, tuple(kept))


def _of_wheel(library: Path) -> Package:
    # auditwheel's form of a name; the version is that of the interface.
    name, _, form = library.name.partition("-")
    files = tuple(LICENCES_ELSEWHERE.glob(f"{name}/*"))
    return Package("generic", name, form.partition(".so.")[2], _named(""), files)


def _named(licence: str) -> dict[str, Any]:
    return {"license": {"name": licence or "see its files"}}


def _of_debian(files: Iterable[Path]) -> Iterator[Package]:
    # A file may be listed below /lib, which is a link to /usr/lib.
    wanted = {form for file in files for form in (str(file), str(file).removeprefix("/usr"))}
    found = subprocess.run(
        ["dpkg-query", "--search", *sorted(wanted)], capture_output=True, text=True, check=False
    )
    lines = [line.partition(": ") for line in found.stdout.splitlines()]
    listed = {file.removeprefix("/usr") for _, _, file in lines}
    unknown = sorted(str(file) for file in files if str(file).removeprefix("/usr") not in listed)
    if unknown:
        raise LookupError(f"No package has these files, so their licence is not known: {unknown}")
    for name in sorted({packages.partition(":")[0] for packages, _, _ in lines}):
        version = subprocess.check_output(
            ["dpkg-query", "--show", "--showformat", "${Version}\n", name], text=True
        ).splitlines()[0]
        licence = Path("/usr/share/doc", name, "copyright")
        yield Package("deb/debian", name, version, _named(""), (licence,))


def write(packages: Iterable[Package], directory: Path, version: str) -> None:
    """Write `bill-of-materials.cdx.json`, and the licences below `licenses`."""
    components: list[dict[str, Any]] = []
    for kind, name, own_version, licence, files in sorted(packages, key=lambda each: each[:3]):
        place = directory / "licenses" / f"{name}-{own_version.replace(':', '_')}"
        place.mkdir(parents=True)
        for file in files:
            shutil.copyfile(file, place / file.name)
        components.append(
            {
                "type": "library",
                "name": name,
                "version": own_version,
                "purl": f"pkg:{kind}/{name}@{own_version}",
                "licenses": [licence],
            }
        )
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "tablestone", "version": version}
        },
        "components": components,
    }
    (directory / "bill-of-materials.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
