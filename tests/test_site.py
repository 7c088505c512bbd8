"""The documentation site: an entry for every public name, every key of a plan, every page, and no
other host.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import semidp
from semidp import Plan
from semidp.publish.statistics.protocol.statistic import kinds

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PLAN = (DOCS / "plan.md").read_text(encoding="utf-8")
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
SUBPACKAGES = ("promise", "publish", "inference", "assess")
PUBLIC = {"semidp": semidp.__all__} | {
    f"semidp.{name}": getattr(semidp, name).__all__ for name in SUBPACKAGES
}


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_has_an_entry(package: str) -> None:
    page = (DOCS / "api" / f"{package.rpartition('.')[2]}.md").read_text(encoding="utf-8")
    entries = re.findall(rf"^::: {re.escape(package)}\.(\w+)$", page, flags=re.MULTILINE)
    assert sorted(entries) == sorted(name for name in PUBLIC[package] if name != "__version__")


def unexplained(names: Iterable[str], text: str) -> list[str]:
    """Return the names that no sentence or example of a text mentions: an entry that only draws a
    docstring says nothing of when to use it.
    """
    written = re.sub(r"(?m)^:::.*$", "", text)
    return [name for name in names if not re.search(rf"\b{name}\b", written)]


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_explained_on_some_page(package: str) -> None:
    own = DOCS / "api" / f"{package.rpartition('.')[2]}.md"
    pages = [own, *DOCS.glob("*.md"), ROOT / "README.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert unexplained(PUBLIC[package], text) == []


def test_an_entry_alone_explains_nothing() -> None:
    text = "::: semidp.promise.Tulap\n\nUse `Recursive` for any curve.\n"
    assert unexplained(["Tulap", "Recursive"], text) == ["Tulap"]


def find_missing_files(text: str) -> list[str]:
    """Return the files of code that a text names and the repository does not have."""
    folders = ("src", "tests", "proofs", "benchmarks", "supply")
    here = []
    for folder in folders:
        here += [f"/{file.relative_to(ROOT).as_posix()}" for file in (ROOT / folder).rglob("*.*")]
    named = sorted(set(re.findall(r"`([\w/]+\.(?:py|v))`", text)))
    return [name for name in named if not any(file.endswith(f"/{name}") for file in here)]


def test_every_file_that_a_page_names_exists() -> None:
    pages = [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert text.count(".py`") > 20
    assert find_missing_files(text) == []


def test_a_file_that_is_gone_is_missing() -> None:
    assert find_missing_files("`adjacency.py` and `spaces/graver.py`") == ["spaces/graver.py"]


def test_every_page_is_in_the_navigation() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    pages |= {f"spec/{page.name}" for page in (ROOT / "spec").glob("*.md")}
    listed = re.findall(r"[\w/]+\.md", SITE)
    assert sorted(listed) == sorted(pages)  # each once


def test_no_page_needs_another_host() -> None:
    assert "http" not in SITE
    assert "font: false" in SITE
    for page in DOCS.rglob("*.md"):
        assert not re.search(
            r"!\[[^]]*\]\(http|<(img|script|link)\b[^>]*http", page.read_text(encoding="utf-8")
        ), page


def test_every_row_of_a_table_is_in_one() -> None:
    """A row after a blank line starts no table: a table starts with a header and a line of
    dashes.
    """
    tables = 0
    for page in (*DOCS.rglob("*.md"), *(ROOT / "spec").glob("*.md"), ROOT / "README.md"):
        lines = ["", *page.read_text(encoding="utf-8").splitlines(), "", ""]
        for place, line in enumerate(lines):
            if line.startswith("|") and not lines[place - 1].startswith("|"):
                assert re.fullmatch(r"\|[-: |]+\|", lines[place + 1]), f"{page.name}, line {place}"
                tables += 1
    assert tables > 20


def test_no_page_holds_both_sides_of_a_conflict() -> None:
    """A rebase leaves such lines where nobody chose between two versions."""
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not _unresolved(text), page.name
    assert _unresolved("a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> 1234567 (Say c)\n")


def _unresolved(text: str) -> bool:
    return bool(re.search(r"^(<<<<<<<|>>>>>>>) ", text, flags=re.MULTILINE))


def test_the_citation_is_of_the_last_version_with_a_date() -> None:
    """The tree after it is a .dev of the next one: folders of the two are told apart."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    version = re.search(r"^version: (\S+)$", citation, flags=re.MULTILINE)
    date = re.search(r"^date-released: (\S+)$", citation, flags=re.MULTILINE)
    assert version
    assert date
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (newest, said), *earlier = re.findall(r"^## (\S+) \((\S+)\)$", changes, flags=re.MULTILINE)
    if said == "unreleased":
        assert semidp.__version__ == f"{newest}.dev0"
        newest, said = earlier[0]
    else:
        assert semidp.__version__ == newest
    assert (version[1], date[1]) == (newest, said)


def test_the_changelog_is_short() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.split(r"^## ", changes, flags=re.MULTILINE)[1:]
    assert len(versions) >= 3
    assert max(version.count("\n") for version in versions) <= 60


def test_the_docs_extra_has_the_packages_that_its_notebook_uses() -> None:
    """`make docs` runs the notebook in an environment of its own: no other extra is there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = (*project["dependencies"], *project["optional-dependencies"]["docs"])
    brought = {re.split(r"[\[<>=]", need)[0] for need in needs}
    cells = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, flags=re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) - {"semidp"} <= brought
    # a relation is read through Arrow
    for used, package in (("to_pandas", "pandas"), ("duckdb.sql", "pyarrow")):
        assert used in code
        assert package in brought


def _example() -> Plan:
    found = re.search(r"^```toml\n(.*?)^```$", PLAN, flags=re.MULTILINE | re.DOTALL)
    assert found
    return Plan.from_toml(found[1])


def _documented(heading: str) -> set[str]:
    section = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PLAN, flags=re.MULTILINE | re.DOTALL
    )
    assert section, heading
    cells = re.findall(r"^\| ([^|]+) \|", section[1], flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_plan_of_the_reference_is_a_plan() -> None:
    plan = _example()
    assert [request.key for request in plan.requests] == [
        "table",
        "group",
        "regression",
        "quantile",
    ]
    assert len(plan.structural_zeros) == 1
    assert Plan.from_toml(plan.to_toml()) == plan


def _known(document: dict[str, Any]) -> set[str]:
    """The keys that the refusal of an unknown key lists."""
    with pytest.raises(semidp.SemidpError) as refused:
        Plan.from_json(document)
    return set(
        re.findall(
            r"\w+",
            str(refused.value).partition("keys ")[2].removeprefix("are ").partition(", not ")[0],
        )
    )


def test_every_key_of_a_plan_is_documented_and_every_documented_key_is_one() -> None:
    lists = {kind.key for kind in kinds()} | {"feature"}
    assert {"table", "odds_ratio"} <= lists
    unknown = {"surely-unknown": 1}
    assert _documented("The plan") == _known(unknown) - lists - {"structural_zero"}
    budget = _documented("Budgets")
    assert budget == {"rho", "mu", "epsilon", "delta"}
    for key in lists:
        assert (
            _documented(f"`[[{key}]]`") == _known({**_example().to_json(), key: [unknown]}) - budget
        ), key
