"""The lock file: names and versions of everything that is installed, within the bounds that users
get.
"""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = [
    line
    for line in (ROOT / "requirements.lock").read_text().splitlines()
    if not line.startswith("#")
]


def pins() -> dict[str, str]:
    return {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in LINES)
    }


def wanted(requirements: list[str]) -> list[Requirement]:
    found = []
    for text in requirements:
        needed = Requirement(text)
        if needed.name == "semidp":
            for extra in needed.extras:
                found += wanted(PROJECT["optional-dependencies"][extra])
        else:
            found.append(needed)
    return found


def test_the_lock_holds_names_and_versions_and_no_address() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+]*", line) for line in LINES)
    assert len(pins()) == len(LINES) > 30


def test_every_dependency_is_locked_within_its_bounds() -> None:
    locked = pins()
    for needed in wanted([*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]):
        assert canonicalize_name(needed.name) in locked, (
            f"{needed.name} is not in requirements.lock"
        )
        assert needed.specifier.contains(locked[canonicalize_name(needed.name)]), needed


def test_the_makefile_installs_by_the_lock_and_the_demo_without_test_tools() -> None:
    text = (ROOT / "Makefile").read_text()
    assert "-c $(LOCK)" in text
    assert re.search(r"^demo: \$\(STAMP\)", text, re.MULTILINE)
    demo = re.search(r"^\$\(STAMP\):.*\n\t(.*)\n", text, re.MULTILINE)
    assert demo is not None
    assert "test" not in demo[1]
    installs = [
        line for line in text.splitlines() if "pip install" in line and "build/lock" not in line
    ]
    assert installs == [line for line in installs if line.startswith("PIP")], (
        "every install goes by the lock"
    )
