"""Reads a report of pip-audit: packages with advisories, and packages that it could not look up."""

import json


def report(stdout: str, stderr: str) -> tuple[int, list[str]]:
    """The exit status, and the lines for a person, from the two outputs of pip-audit.

    An index that cannot be reached is no failure: the change under test does not decide whether a package has an
    advisory.
    """
    try:
        packages = json.loads(stdout)["dependencies"]
    except ValueError:
        why = (stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return 0, [f"No advisories were looked up: {why}"]
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
    return int(bool(found)), lines + found
