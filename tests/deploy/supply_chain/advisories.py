"""Reads a report of pip-audit: packages with advisories, and packages that it could not look up."""

import json
from typing import Final

NOT_LOOKED_UP: Final = 77
"""The exit status by which `.ci/steps.sh` knows a step that was skipped."""


def report(stdout: str, stderr: str) -> tuple[int, list[str]]:
    """The exit status, and the lines for a person, from the two outputs of pip-audit.

    An index that cannot be reached, or knows none of the packages, is no failure, but nothing was looked up.
    """
    try:
        packages = json.loads(stdout)["dependencies"]
    except ValueError:
        why = (stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return NOT_LOOKED_UP, [f"No advisories were looked up: {why}"]
    found = [
        f"{package['name']} {package['version']}: {advisory['id']}"
        + (f", fixed in {', '.join(advisory['fix_versions'])}" if advisory["fix_versions"] else "")
        for package in packages
        for advisory in package.get("vulns", [])
    ]
    asked = [each["name"] for each in packages if "skip_reason" not in each]
    unasked = [each["name"] for each in packages if "skip_reason" in each]
    lines = [f"{len(asked)} packages were looked up, {len(found)} advisories were found."]
    if unasked:
        lines.append(f"No advisories can be had here for {len(unasked)} packages: {unasked[0]}, …")
    return (int(bool(found)) if asked else NOT_LOOKED_UP), lines + found
