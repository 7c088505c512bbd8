"""The lock files: versions and hashes of everything that is installed, within the bounds that users
get.
"""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USERS, TESTS = "requirements.lock", "requirements-test.lock"
# A package, perhaps for some systems only, then one hash a line.
ENTRY = re.compile(
    r"^(?P<name>[a-z0-9._-]+)==(?P<version>[0-9][a-z0-9.+]*)(?: ; (?P<marker>[^\\\n]+?))?"
    r"(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n",
    re.MULTILINE,
)


def pins(lock: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in ENTRY.finditer((ROOT / lock).read_text()):
        found.setdefault(canonicalize_name(entry["name"]), set()).add(entry["version"])
    return found


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


@pytest.mark.parametrize(("lock", "least"), [(USERS, 30), (TESTS, 70)])
def test_a_lock_holds_versions_and_hashes_and_no_address(lock: str, least: int) -> None:
    text = (ROOT / lock).read_text()
    assert ENTRY.sub("", text) == ""
    assert len(pins(lock)) >= least


@pytest.mark.parametrize("lock", [USERS, TESTS])
def test_every_dependency_is_locked_within_its_bounds(lock: str) -> None:
    locked = pins(lock)
    extra = PROJECT["optional-dependencies"]["test"] if lock == TESTS else []
    for needed in wanted([*PROJECT["dependencies"], *extra]):
        versions = locked.get(canonicalize_name(needed.name))
        assert versions, f"{needed.name} is not in {lock}"
        assert all(needed.specifier.contains(version) for version in versions), needed


def test_tests_run_with_the_versions_that_users_get() -> None:
    tested = pins(TESTS)
    assert {name: tested[name] for name in pins(USERS)} == pins(USERS)


def test_the_makefile_installs_by_hash_and_the_demo_without_test_tools() -> None:
    text = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo: \$\(STAMP\)", text, re.MULTILINE)
    demo = re.search(r"^\$\(STAMP\):.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    assert demo is not None
    assert "PIP_LOCKED) $(LOCK)" in demo[1]
    assert "test" not in demo[1].lower()
    # Only tools that write locks and bills of materials, or that fuzz, are installed without a
    # pinned version, and none of these into the environment of the demo.
    loose = [line for line in text.splitlines() if "$(PIP_QUIET)" in line and ":=" not in line]
    tools = ("--no-deps", " uv", "cyclonedx", "--target $@ 'atheris")
    assert all(any(tool in line for tool in tools) for line in loose)


def test_the_page_of_licenses_lists_what_is_locked() -> None:
    rows = re.findall(
        r"^\| ([\w.-]+) \| (\S+) \| (.+) \|$",
        (ROOT / "docs" / "licenses.md").read_text(),
        re.MULTILINE,
    )
    rows = rows[1:]  # the heading
    assert [name for name, _, _ in rows] == list(pins(USERS))
    assert all(version in pins(USERS)[name] for name, version, _ in rows)
    assert not [name for name, _, license_ in rows if license_ in ("not stated", "")]


def test_actions_of_workflows_are_pinned_to_a_commit() -> None:
    texts = [path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = re.findall(r"uses: *(\S+)(.*)", "".join(texts))
    assert len(used) >= 9
    for action, version in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" +# v[0-9]+\.[0-9]+\.[0-9]+", version), action
