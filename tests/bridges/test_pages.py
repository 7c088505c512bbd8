"""docs/opendp.md, executed; and the works that pages cite are in the references."""

import doctest
import re
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_page_about_opendp_says_what_happens() -> None:
    found = doctest.testfile(
        str(DOCS / "opendp.md"),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert found.attempted > 20
    assert found.failed == 0


CITED = re.compile(r"`([a-z]+\d{4}[a-z]+)`")


def test_every_work_that_a_page_cites_is_in_the_references() -> None:
    listed = set(
        re.findall(
            r"^@\w+\{(\w+),",
            (DOCS / "references.bib").read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
    )
    cited = {
        key for page in DOCS.glob("*.md") for key in CITED.findall(page.read_text(encoding="utf-8"))
    }
    assert len(cited) > 25
    assert cited <= listed


def test_every_row_of_related_work_names_its_source() -> None:
    page = (DOCS / "related.md").read_text(encoding="utf-8")
    rows = [
        line
        for line in page.splitlines()
        if line.startswith("| ") and not line.startswith("| work")
    ]
    assert len(rows) > 15
    assert all(CITED.search(row.split("|")[1]) for row in rows)
