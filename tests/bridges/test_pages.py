"""docs/opendp.md, executed."""

import doctest
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_page_about_opendp_says_what_happens() -> None:
    found = doctest.testfile(
        str(DOCS / "opendp.md"), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert found.attempted > 20
    assert found.failed == 0
