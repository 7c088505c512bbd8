"""Releases by parts are combined, and asked for weighted sums, as those in one piece are."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import semidp
from semidp import Budget, Plan, Release, RunOptions, combine
from semidp.cli import run as command
from semidp.errors import InputError, Refused
from semidp.promise import SeededRandomness
from semidp.promise.documents import read_document
from semidp.publish import TableRequest, TablesRequest, release_value
from semidp.publish.recheck import disagreements
from tests.partitions.conftest import FEATURES, records


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Release, "report_html", lambda self, title=None: "")


def product(exact: tuple[str, ...] = ("state",)) -> Plan:
    tables = [
        TableRequest(["tract", "sex"]),
        TableRequest(["county", "age"]),
        TableRequest(["state"]),
    ]
    return Plan([TablesRequest(tables, Budget.gdp(2))], invariants=exact, features=FEATURES)


def cells(exact: tuple[str, ...] = ("sex",)) -> Plan:
    request = TableRequest(["county", "sex"], Budget.pure(1), mechanism="laplace")
    return Plan([request], invariants=exact, features=FEATURES)


def by_parts(plan: Plan, out: Path, seed: int = 3) -> Release:
    options = RunOptions(out=out, randomness=SeededRandomness(seed))
    return semidp.run(plan, records(), options, partition="state")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a product by parts."""
    folder = tmp_path_factory.mktemp("combined") / "parts"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Release, "report_html", lambda self, title=None: "")
        by_parts(product(), folder)
    return folder


@pytest.mark.few(1)
@pytest.mark.parametrize(("plan", "measured"), [(product(), "residuals"), (cells(), "cells")])
def test_a_release_by_parts_beside_nothing_is_what_it_published(
    plan: Plan, measured: str, tmp_path: Path, place: Path
) -> None:
    by_residuals = measured == "residuals"
    release = Release.load(place) if by_residuals else by_parts(plan, tmp_path / "parts")
    assert (release.results[0].residual_noise() is not None) == by_residuals
    nothing = semidp.run(
        Plan([TableRequest(["sex"], Budget.gdp(1))], ["sex"], features=FEATURES), records()
    )
    both = combine(release, nothing)
    tables = {one.schema.names: one for one in both.tables}
    sexes_known = "sex" not in plan.to_json()["invariants"]
    for published in release.tables:
        one = tables[published.schema.names]
        assert (one.standard_errors <= published.standard_errors + 1e-9).all()
        if not sexes_known or "sex" not in published.schema.names:
            np.testing.assert_allclose(one.estimate, published.estimate, atol=1e-8)
            np.testing.assert_allclose(
                one.standard_errors, published.standard_errors, rtol=1e-9, atol=1e-9
            )


@pytest.mark.long
def test_parts_and_one_piece_are_averaged_by_precision(place: Path) -> None:
    """The same plan by parts and in one piece: every error is that of one over the root of two."""
    first = Release.load(place)
    second = semidp.run(product(), records(), SeededRandomness(4))
    both = combine(place, second)
    for one, early, late in zip(both.tables, first.tables, second.tables, strict=True):
        np.testing.assert_allclose(one.estimate, (early.estimate + late.estimate) / 2, atol=1e-8)
        np.testing.assert_allclose(
            one.standard_errors, late.standard_errors / np.sqrt(2), rtol=1e-9, atol=1e-9
        )
    assert both.stated is not None
    assert both.guarantee.tradeoff.mu_squared == 2 * first.guarantee.tradeoff.mu_squared


@pytest.mark.long
def test_the_folder_of_a_combination_holds_the_parts(
    tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(place, tmp_path / "march")
    semidp.run(product(("sex",)), records(), SeededRandomness(4)).save(tmp_path / "june")
    folders = [str(tmp_path / name) for name in ("march", "june")]
    assert command(["combine", *folders, "--out", str(tmp_path / "both")]) == 0
    both = Release.load(tmp_path / "both")
    assert disagreements(both, read_document(tmp_path / "both" / "release.json")) == ()
    assert list((tmp_path / "both" / "releases" / "1").glob("state=01/*"))
    capsys.readouterr()
    assert (
        command(
            [
                "intervals",
                str(tmp_path / "both"),
                "--of",
                "county=01a",
                "--of",
                "sex=f",
                "--seed",
                "1",
            ]
        )
        == 0
    )
    assert "interval" in capsys.readouterr().out
    assert command(["combine", folders[0], folders[0], "--out", str(tmp_path / "x")]) == 2
    # What a part has measured is no longer what was drawn.
    changed = next((tmp_path / "march").glob("state=01/*measurements*"))
    changed.write_bytes(changed.read_bytes() + b" ")
    assert command(["combine", *folders, "--out", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()


@pytest.mark.long
def test_weighted_sums_and_intervals_of_parts_are_those_of_one_piece(place: Path) -> None:
    parts = Release.load(place)
    whole = semidp.run(product(), records(), SeededRandomness(4))
    generator = np.random.default_rng(2)
    weights = {table.name: generator.normal(size=table.schema.shape) for table in whole.tables}
    value, error = parts.estimate(weights)
    assert error == pytest.approx(whole.estimate(weights)[1], rel=1e-9)
    expected = sum(float((table.estimate * weights[table.name]).sum()) for table in parts.tables)
    assert value == pytest.approx(expected, rel=1e-9)
    answer = parts.interval(
        {"county": "01a", "sex": "f"}, draws=999, randomness=SeededRandomness(1)
    )
    counts = records()
    truth = sum(
        c == "01a" and s == "f" for c, s in zip(counts["county"], counts["sex"], strict=True)
    )
    assert abs(answer.value - truth) < 6 * answer.standard_error
    assert parts.test("sex", "state", draws=99, randomness=SeededRandomness(1)).p_value > 0


def test_parts_that_are_too_large_together_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Release.load(place)
    monkeypatch.setattr(release_value, "MOST_WHOLE", 10)
    for ask in (
        lambda: parts.estimate({"state": np.ones(4)}),
        lambda: parts.interval({"sex": "f"}),
        lambda: combine(parts, semidp.run(product(), records())),
    ):
        with pytest.raises(
            Refused, match=r"take all parts of a release together, and these tables have \d+ cells"
        ):
            ask()


def test_parts_whose_folder_is_not_known_are_refused(place: Path) -> None:
    parts = Release.load(place)
    with pytest.raises(InputError, match="in the folders of its parts"):
        parts.results[0].whole_noisy(None)
