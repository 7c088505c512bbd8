"""The documentation site: an entry for every public name, every key of a plan, every page, and no other host."""

import re
from pathlib import Path
from typing import Any

import pytest

import semidp
from semidp import Plan

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PLAN = (DOCS / "plan.md").read_text(encoding="utf-8")
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
SUBPACKAGES = ("accounting", "audit", "bridges", "grouped", "inference", "mechanisms", "noise")
PUBLIC = {"semidp": semidp.__all__} | {f"semidp.{name}": getattr(semidp, name).__all__ for name in SUBPACKAGES}


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_has_an_entry(package: str) -> None:
    page = (DOCS / "api" / f"{package.rpartition('.')[2]}.md").read_text(encoding="utf-8")
    entries = re.findall(rf"^::: {re.escape(package)}\.(\w+)$", page, flags=re.MULTILINE)
    assert sorted(entries) == sorted(name for name in PUBLIC[package] if name != "__version__")


def test_every_page_is_in_the_navigation() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert set(re.findall(r"[\w/]+\.md", SITE)) == pages


def test_no_page_needs_another_host() -> None:
    assert "http" not in SITE
    assert "font: false" in SITE
    for page in DOCS.rglob("*.md"):
        assert not re.search(r"!\[[^]]*\]\(http|<(img|script|link)\b[^>]*http", page.read_text(encoding="utf-8")), page


def _example() -> Plan:
    found = re.search(r"^```toml\n(.*?)^```$", PLAN, flags=re.MULTILINE | re.DOTALL)
    assert found
    return Plan.from_toml(found[1])


def _documented(heading: str) -> set[str]:
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PLAN, flags=re.MULTILINE | re.DOTALL)
    assert section, heading
    cells = re.findall(r"^\| ([^|]+) \|", section[1], flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_plan_of_the_reference_is_a_plan() -> None:
    plan = _example()
    assert (len(plan.tables), len(plan.groups), len(plan.regressions), len(plan.structural_zeros)) == (1, 1, 1, 1)
    assert len(plan.quantiles) == 1
    assert Plan.from_toml(plan.to_toml()) == plan


def _known(document: dict[str, Any]) -> set[str]:
    """The keys that the refusal of an unknown key lists."""
    with pytest.raises(semidp.SemidpError) as refused:
        Plan.from_json(document)
    return set(re.findall(r"\w+", str(refused.value).partition("keys ")[2].removeprefix("are ").partition(", not ")[0]))


def test_every_key_of_a_plan_is_documented_and_every_documented_key_is_one() -> None:
    lists = {"table", "group", "regression", "quantile", "feature"}
    unknown = {"surely-unknown": 1}
    assert _documented("The plan") == _known(unknown) - lists - {"structural_zero"}
    budget = _documented("Budgets")
    assert budget == {"rho", "mu", "epsilon", "delta"}
    for key in lists:
        assert _documented(f"`[[{key}]]`") == _known({**_example().to_json(), key: [unknown]}) - budget, key
