"""Write docs/licenses.md: the license of every package that `requirements.lock` installs."""

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "licenses.md"
HEADING = """# Licenses of what semidp installs

`make sbom` writes this page from the metadata of the packages in `requirements.lock`, next to a
CycloneDX bill of materials in `build/sbom.cdx.json`.

| package | version | license |
|---|---|---|
"""


def list_locked() -> dict[str, str]:
    """Names and versions in the lock; of several versions of a package, the first."""
    locked: dict[str, str] = {}
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    ):
        locked.setdefault(name, version)
    return locked


def list_known() -> dict[tuple[str, str], str]:
    """Licenses on the page as it is, by package and version."""
    rows = re.findall(r"^\| (\S+) \| (\S+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {(name, version): license for name, version, license in rows}


def name_license(package: str, known: str | None) -> str:
    """The license that a package states: its expression, else its classifiers, else its text."""
    try:
        facts = metadata(package)
    except PackageNotFoundError:  # locked for another system
        return known or "not installed here"
    expression = facts.get("License-Expression")
    if expression:
        return expression
    classifiers = [
        line.rpartition(" :: ")[2]
        for line in facts.get_all("Classifier") or []
        if line.startswith("License ::") and not line.endswith(":: OSI Approved")
    ]
    text = (facts.get("License") or "").strip().partition("\n")[0]
    return ", ".join(classifiers) or text or "not stated"


if __name__ == "__main__":
    known = list_known()
    rows = []
    for name, version in list_locked().items():
        license = name_license(name, known.get((name, version))).replace("|", "/")
        rows.append(f"| {name} | {version} | {license} |")
    PAGE.write_text(HEADING + "\n".join(rows) + "\n")
