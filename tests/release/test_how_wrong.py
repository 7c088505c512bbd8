"""How wrong a release is, said where people look: on the terminal, in warnings, at the top of the
report.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import semidp
from semidp.cli import run as command
from semidp.present.release import Release
from semidp.present.report.report_page import GLOSSARY
from semidp.present.report.sentences import cautions, summary
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.results.grids import faint_cells
from semidp.publish.results.texts import estimate_text
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.tables.words import CellErrors, combine_cell_errors

DOCS = Path(__file__).parent.parent.parent / "docs"
PEOPLE = {
    "sex": [*"fm"] * 60,
    "age": ["young", "old", "middle"] * 40,
    "region": [*"nesw"] * 30,
    "ill": ["no", "no", "no", "no", "no", "no", "yes"] * 17 + ["yes"],
    "pay": [float(number % 50) for number in range(120)],
}


def released(
    *wanted: Request | semidp.publish.TableRequest, mu: float | str = 1, seed: int = 1
) -> Release:
    return semidp.release(
        PEOPLE,
        *wanted,
        exact=["sex"],
        mu=mu,
        levels_from_data=True,
        randomness=SeededRandomness(seed),
    )


def test_the_terminal_says_how_wrong_a_cell_is() -> None:
    release = released(semidp.table("sex", "age"))
    table = release.tables[0]
    error = float(table.standard_errors.max())
    line = next(line for line in summary(release).splitlines() if line.startswith("error"))
    assert f"standard error {error:.1f} per cell" in line
    assert "noise dominates no cell" in line
    assert "expected distance" not in summary(release)


def test_the_share_of_cells_is_that_of_the_counts_and_is_warned_of_above_a_quarter() -> None:
    checked = set()
    for mu in (0.05, 0.3, 1, 100):
        release = released(semidp.table("region", "ill"), mu=mu)
        table = release.tables[0]
        share = float(np.mean(table.counts < table.half_widths - 3e-6))
        assert CellErrors.from_table(table).share == share == float(np.mean(faint_cells(table)))
        warned = cautions(release)
        assert bool(warned) == (share > 0.25)
        checked.add(bool(warned))
        if warned:
            assert warned[0].startswith(
                f"Noise dominates {share:.0%} of the cells of region by ill: "
            )
            assert warned[0] in release.report_html().replace("&#39;", "'")
    assert checked == {True, False}


@pytest.mark.pictures
@pytest.mark.long
def test_many_tables_are_one_line_and_a_list_of_errors() -> None:
    sets = [
        ("sex",),
        ("age",),
        ("ill",),
        ("sex", "age"),
        ("sex", "ill"),
        ("age", "ill"),
        ("sex", "age", "ill"),
    ]
    tables = [semidp.table(*names) for names in sets]
    release = released(*tables)
    said = summary(release)
    assert len(release.tables) == 7
    cells = sum(table.schema.size for table in release.tables)
    assert [line for line in said.splitlines() if line.startswith("with noise")] == [
        f"with noise 7 tables, which add up: {cells:,} cells"
    ]
    assert said.count("\nerror ") == 1
    for table in release.tables:
        (row,) = re.findall(rf"^ +{table.name} .*$", said, flags=re.MULTILINE)
        assert row.split()[1] == f"{table.schema.size}"
    page = release.report_html()
    # The list stands above everything that explains it.
    assert page.index("<h2>How wrong the tables are</h2>") < page.index(
        "<h2>What is protected, and from whom</h2>"
    )
    few = released(*tables[3:5])
    assert summary(few).count("\nerror ") == 2
    assert "<h2>How wrong the tables are</h2>" in few.report_html()


def test_all_together_is_over_the_cells_with_noise() -> None:
    release = released(semidp.table("sex", "age"), semidp.table("region", "ill"))
    errors = np.concatenate([table.standard_errors.ravel() for table in release.tables])
    together = combine_cell_errors([CellErrors.from_table(table) for table in release.tables])
    assert together.errors["standard_error"] == pytest.approx(
        np.sqrt((errors[errors > 0] ** 2).mean())
    )
    assert together.cells == errors.size
    assert (together.errors["smallest"], together.errors["largest"]) == (
        errors[errors > 0].min(),
        errors.max(),
    )


@pytest.mark.pictures
def test_small_means_are_marked_on_the_terminal_and_in_the_report() -> None:
    wanted = semidp.mean("pay", by="region", bounds=(0, 1000))
    vague, sharp = released(wanted, mu="0.05"), released(wanted, mu=200)
    lines = [line for line in summary(vague).splitlines() if " ± " in line]
    assert len(lines) == 4
    assert all(": ≈" in line for line in lines)
    assert "≈ noise dominates 4 of 4 groups" in summary(vague)
    assert cautions(vague)[0].startswith(
        "Noise dominates 100% of the groups (mean of pay by region)"
    )
    assert vague.report_html().count("<td>≈") == 4
    assert "≈" not in summary(sharp)
    assert not cautions(sharp)
    # A twin: each estimate that is marked is smaller than two errors, or as wide as half of the
    # bounds.
    for _, _, value, error, *_ in vague.groups[0].estimates[0].rows():
        assert abs(value) < 2 * error or 4 * error >= 500


@pytest.mark.parametrize("error", [0.00123, 0.05, 0.99, 1, 9.96, 66.7, 12345.0])
def test_estimates_have_the_digits_that_their_error_leaves(error: float) -> None:
    value_text, _, error_text = estimate_text(-1234.56789, error).partition(" ± ")
    value, shown = float(value_text.replace(",", "")), float(error_text.replace(",", ""))
    assert abs(value + 1234.56789) <= error / 2
    assert abs(shown - error) <= 0.05 * error
    assert len(value_text.partition(".")[2]) == len(error_text.partition(".")[2])


def test_quiet_is_quiet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "people.csv"
    lines = [
        ",".join(PEOPLE),
        *(",".join(map(str, row)) for row in zip(*PEOPLE.values(), strict=True)),
    ]
    file.write_text("\n".join(lines) + "\n")
    words = [
        "release",
        str(file),
        "--table",
        "region,ill",
        "--levels-from-data",
        "--mu",
        "0.05",
        "--quiet",
    ]
    assert command([*words, "--out", str(tmp_path / "quiet")]) == 0
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert (tmp_path / "quiet" / "report.html").exists()
    # That a release is not private is said to everybody.
    assert command([*words, "--out", str(tmp_path / "seeded"), "--seed", "1"]) == 0
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith("warning: not private")
    assert command(["show", str(tmp_path / "quiet")]) == 0
    assert "warning: Noise dominates" in capfd.readouterr().err


def test_the_glossary_is_the_page_and_is_in_every_report() -> None:
    page = (DOCS / "glossary.md").read_text(encoding="utf-8")
    report = released(semidp.table("sex", "age")).report_html()
    assert 'href="#words"' in report
    assert 'id="words"' in report
    assert len(GLOSSARY) > 12
    for term, meaning in GLOSSARY:
        assert f"| {term} | {meaning} |" in page
        assert f"<dt>{term}</dt>" in report
    for word in ("a(t)", "ball", "exchange", "residual", "Gaussian", "Δ2"):
        assert any(word in term for term, _ in GLOSSARY)
