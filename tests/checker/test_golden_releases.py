"""What the checker says of every golden release, as docs/proofs.md counts it."""

import shlex
from collections import Counter
from pathlib import Path

import pytest

from semidp.cli import run
from tests.checker.test_releases import verdict_of
from tests.golden.example_data import write_files
from tests.golden.golden_outputs import inside
from tests.golden.scenarios import SCENARIOS

EXPECTED = {
    "table-delta/r": "not covered",
    "table-epsilon/r": "not covered",
    "table-knorm/r": "not covered",
    "regress-two/r": "not covered",
    "combine/c": "not covered",
    "combine-products/c": "not covered",
}


@pytest.mark.long
def test_golden_releases_are_confirmed(tmp_path: Path) -> None:
    verdicts: dict[str, str] = {}
    for name, commands in SCENARIOS.items():
        folder = tmp_path / name
        folder.mkdir()
        with inside(folder):
            write_files(folder)
            for line in commands.split(" ; "):
                words = shlex.split(line)
                seed = words[0] == "release" and "--seed" not in words
                run([*words, *(["--seed", "1"] if seed else [])])
        for document in sorted(folder.glob("*/release.json")):
            place = document.parent
            verdicts[f"{name}/{place.name}"] = verdict_of(place, 1)
    others = {n: v for n, v in verdicts.items() if not v.startswith("confirmed")}
    assert others == EXPECTED
    page = (Path(__file__).parents[2] / "docs" / "proofs.md").read_text("utf-8")
    _, table = page.split("| kind of release | confirmed | weaker than stated | not covered |\n")
    counts: Counter[str] = Counter()
    for row in table.split("\n\n")[0].splitlines()[1:]:
        _, *numbers = [cell.strip() for cell in row.strip("|").split("|")]
        kinds = ("confirmed", "weaker than stated", "not covered")
        counts.update(dict(zip(kinds, map(int, numbers), strict=True)))
    assert counts == Counter(verdicts.values())
