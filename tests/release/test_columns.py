"""The columns of a table's file: the count, and the estimate with its own standard error and
interval.
"""

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from semidp import Budget, Feature, Plan, Release, run
from semidp.promise.confidential import reveal
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest
from semidp.publish.half_widths import cell_half_widths
from semidp.publish.recheck import disagreements, recheck
from semidp.publish.statistics.tables import published

HEADER = ["sex", "region", "estimate", "standard_error", "estimate_low", "estimate_high", "count"]
FEATURES = [Feature("sex", "fm"), Feature("region", "nsw")]
PEOPLE = {"sex": [*"fmmfm"] * 8, "region": [*"nnswsnws"] * 5}


WEAK = Budget.gdp("1/10")


def released(budget: Budget = WEAK, fit: str = "integer", seed: int = 1) -> Release:
    plan = Plan([TableRequest(["sex", "region"], budget, fit=fit)], ["sex"], features=FEATURES)
    return run(plan, PEOPLE, SeededRandomness(seed))


def columns(folder: Path) -> dict[str, np.ndarray]:
    header, *rows = csv.reader((folder / "table.csv").read_text().splitlines())
    assert header[:2] == HEADER[:2]
    numbers = np.array([[float(cell) for cell in row[2:]] for row in rows])
    return dict(zip(header[2:], numbers.T, strict=True))


def test_every_number_stands_beside_its_own_error(tmp_path: Path) -> None:
    release = released()
    release.save(tmp_path)
    found, table = columns(tmp_path), release.tables[0]
    assert list(found) == HEADER[2:]
    assert found["estimate"].tolist() == table.estimate.ravel().tolist()
    assert found["standard_error"].tolist() == table.standard_errors.ravel().tolist()
    assert found["estimate_high"] - found["estimate"] == pytest.approx(
        table.half_widths.ravel(), abs=2e-6
    )
    assert found["estimate"] - found["estimate_low"] == pytest.approx(
        table.half_widths.ravel(), abs=2e-6
    )
    assert table.half_widths == pytest.approx(1.96 * table.standard_errors, rel=0.02), (
        "the noise is wide here"
    )
    assert (found["estimate_low"] < 0).any(), "intervals are never clipped"
    assert (found["count"] >= 0).all()
    assert (found["count"] % 1 == 0).all()


def test_a_count_may_lie_outside_the_interval(tmp_path: Path) -> None:
    outside = []
    for seed in range(12):
        table = released(Budget.gdp("1/20"), seed=seed).tables[0]
        far = np.abs(table.counts - table.estimate) > table.half_widths
        outside.append(bool(far.any()))
    assert any(outside)


def test_without_a_fit_the_count_is_the_estimate(tmp_path: Path) -> None:
    released(fit="none").save(tmp_path / "none")
    raw = columns(tmp_path / "none")
    assert raw["count"].tolist() == raw["estimate"].tolist()
    assert raw["count"].min() < 0
    assert Release.load(tmp_path / "none").tables[0].fitted.kind == "none"


def test_large_tables_leave_the_intervals_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "INTERVALS_BELOW", 6)
    release = released()
    release.save(tmp_path)
    assert list(columns(tmp_path)) == ["estimate", "standard_error", "count"]
    assert (Release.load(tmp_path).tables[0].estimate == release.tables[0].estimate).all()


def forge(folder: Path, **changed: np.ndarray) -> None:
    """Write other columns into table.csv, and its digest into release.json."""
    header, *rows = csv.reader((folder / "table.csv").read_text().splitlines())
    for name, values in changed.items():
        for row, value in zip(rows, values.ravel().tolist(), strict=True):
            row[header.index(name)] = repr(value)
    (folder / "table.csv").write_text("\n".join(map(",".join, [header, *rows])) + "\n")
    document = json.loads((folder / "release.json").read_text())
    document["files"]["table.csv"] = hashlib.sha256((folder / "table.csv").read_bytes()).hexdigest()
    (folder / "release.json").write_text(json.dumps(document))


def test_forged_estimates_errors_and_intervals_are_found(tmp_path: Path) -> None:
    release = released()
    release.save(tmp_path / "fine")
    document = json.loads((tmp_path / "fine" / "release.json").read_text())
    assert disagreements(Release.load(tmp_path / "fine"), document) == ()
    table = release.tables[0]
    for name, estimate, error, half, said in (
        (
            "estimate",
            table.estimate + 1,
            table.standard_errors,
            table.half_widths,
            "another column 'estimate' in table.csv",
        ),
        (
            "error",
            table.estimate,
            table.standard_errors / 2,
            table.half_widths,
            "another column 'standard_error' in table.csv",
        ),
        (
            "short",
            table.estimate,
            table.standard_errors,
            0.9 * table.half_widths,
            "another column 'estimate_low' in table.csv",
        ),
    ):
        release.save(tmp_path / name)
        low, high = estimate - half, estimate + half
        forge(
            tmp_path / name,
            estimate=estimate,
            standard_error=error,
            estimate_low=low,
            estimate_high=high,
        )
        changed = json.loads((tmp_path / name / "release.json").read_text())
        wrong = recheck(Release.load(tmp_path / name), changed, tmp_path / name).disagreements
        assert any(said in sentence for sentence in wrong), wrong


@pytest.mark.parametrize(
    "budget", [Budget.gdp("1/2"), Budget.zcdp("1/20"), Budget.pure("1/2")], ids=str
)
def test_intervals_hold_the_truth_in_95_of_100_draws(budget: Budget) -> None:
    """Binomial bound at five standard deviations (false alarm below 1e-6); the factor of the other
    law would show.
    """
    from semidp.publish.pipeline import prepare

    plan = Plan([TableRequest(["sex", "region"], budget)], features=FEATURES)
    prepared = prepare(plan, PEOPLE)
    mechanism, truth = prepared.mechanisms[0], reveal(prepared.values[0])
    draws = 20_000
    noisy = mechanism.measure_many(truth, draws, SeededRandomness(3))
    errors = np.stack([mechanism.publish(one) for one in noisy[:draws]])[:, 0, 0] - truth[0, 0]
    half = cell_half_widths(mechanism)[0, 0]
    held, allowed = (np.abs(errors) <= half + 1e-9).mean(), 5 * np.sqrt(0.95 * 0.05 / draws)
    assert held > 0.95 - allowed
    assert held < 0.963
    assert (np.abs(errors) <= 0.8 * half).mean() < 0.95 - allowed, (
        "an interval that is a fifth too short shows"
    )
