"""Several files: each near its own draw of the noise, with the exact totals, and one answer from
all of them.
"""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import semidp
from semidp import Budget, Feature, InputError, Plan, Refused, Release, run
from semidp.cli import run as command
from semidp.inference import combine_estimates
from semidp.inference.records.record_assembly import EstimateDraws
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.statistics.tables.request import list_all_tables

LEVELS = {"sex": "fm", "age": "yio", "ill": "nj"}
N = 900


def people() -> dict[str, list[str]]:
    rng = np.random.default_rng(5)
    return {
        name: [levels[i] for i in rng.integers(len(levels), size=N)]
        for name, levels in LEVELS.items()
    }


def released(budget: Budget | None = None) -> Release:
    features = [Feature(name, levels) for name, levels in LEVELS.items()]
    request = TablesRequest(list_all_tables(list(LEVELS)), budget or Budget.gdp("1/2"))
    return run(Plan([request], ["sex"], features=features), people(), SeededRandomness(7))


def draws_of(done: Release, count: int) -> dict[str, np.ndarray]:
    law = EstimateDraws.from_release(done)
    drawn = [law.draw(SeededRandomness(100 + number)) for number in range(count)]
    return {table.name: np.stack([draw[table.name] for draw in drawn]) for table in done.tables}


def chi_square(done: Release, draws: dict[str, np.ndarray], scale: float = 1.0) -> float:
    """The least and the largest two-sided p value of all cells: is the variance of draws the one
    that is stated?
    """
    smallest = 1.0
    for table in done.tables:
        noisy = table.standard_errors > 0
        off = (draws[table.name] - table.estimate)[:, noisy] / (
            scale * table.standard_errors[noisy]
        )
        squares = (off**2).sum(axis=0)
        tails = stats.chi2.cdf(squares, len(off))
        smallest = min(smallest, float(2 * np.minimum(tails, 1 - tails).min()))
    return smallest


def test_draws_have_the_errors_that_the_release_states() -> None:
    """False alarms: fewer than 1 in 10^4 for about 16 cells. A scale 30% off is caught."""
    done = released()
    draws = draws_of(done, 300)
    assert chi_square(done, draws) > 1e-5
    assert chi_square(done, draws, 1.3) < 1e-5
    assert chi_square(done, draws, 1 / 1.3) < 1e-5


def test_draws_of_tables_that_share_a_budget_agree() -> None:
    done = released()
    law = EstimateDraws.from_release(done)
    for drawn in (law.draw(SeededRandomness(seed)) for seed in range(5)):
        by_age = drawn["sex-age"].sum(axis=0), drawn["age-ill"].sum(axis=1)
        assert np.allclose(*by_age)
        assert np.allclose(drawn["sex-age"].sum(axis=1), drawn["sex-ill"].sum(axis=1))
        exact = Counter(people()["sex"])
        assert np.allclose(drawn["sex-ill"].sum(axis=1), [exact["f"], exact["m"]])


def test_tables_with_budgets_of_their_own_are_drawn_too() -> None:
    features = [Feature(name, levels) for name, levels in LEVELS.items()]
    requests = [
        TableRequest(["sex", "age"], Budget.gdp(1)),
        TableRequest(["sex", "ill"], Budget.pure(1), name="own"),
    ]
    done = run(Plan(requests, ["sex"], features=features), people(), SeededRandomness(7))
    draws = draws_of(done, 200)
    for table in done.tables:
        ratio = draws[table.name].std(axis=0) / table.standard_errors
        assert 0.8 < ratio.min() <= ratio.max() < 1.25


def test_files_differ_as_much_as_the_noise_and_keep_exact_totals() -> None:
    done = released()
    exact = Counter(people()["sex"])
    sets = done.several_records(8, SeededRandomness(3))
    cells = []
    for records in sets:
        columns = records.to_dict()
        assert Counter(columns["sex"]) == exact
        cells.append(Counter(zip(columns["sex"], columns["ill"], strict=True))["f", "n"])
    error = float(done["sex-ill"].standard_errors[0, 0])
    # 7 degrees of freedom: the ratio of spreads is outside with probability 2e-4.
    assert 0.2 < np.std(cells, ddof=1) / error < 2.1


@pytest.mark.long
def test_the_command_writes_numbered_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    released().save(tmp_path / "r")
    out = tmp_path / "people.csv"
    words = ["synthesize", str(tmp_path / "r"), "--out", str(out), "--files", "3", "--seed", "1"]
    assert command(words) == 0
    assert "files      3, each near its own draw" in capsys.readouterr().out
    written = sorted(path.name for path in tmp_path.glob("people*.csv"))
    assert written == ["people-1.csv", "people-2.csv", "people-3.csv"]
    assert len({(tmp_path / name).read_bytes() for name in written}) == 3
    about = json.loads((tmp_path / "people-2.about.json").read_text())
    assert about["files"] == 3
    assert "combine_estimates" in " ".join(about["statement"])
    assert command([*words, "--quiet"]) == 2  # they are there
    for number in ("0", "100000000"):
        assert command([*words[:-4], "--files", number, "--quiet"]) == 2


def test_the_rules_of_combination() -> None:
    answers, squares = [3.0, 5.0, 4.0, 8.0], [1.0, 2.0, 3.0, 2.0]
    between = np.var(answers, ddof=1)
    alone = combine_estimates(answers, level=0.9)
    error = math.sqrt(1.25 * between)
    assert alone.standard_error == pytest.approx(error)
    assert alone.high - alone.value == pytest.approx(stats.t.ppf(0.95, 3) * error)
    both = combine_estimates(answers, squares)
    assert both.standard_error == pytest.approx(math.sqrt(2 + 1.25 * between))
    assert both.degrees == pytest.approx(3 * (1 + 2 / (1.25 * between)) ** 2)


@pytest.mark.parametrize("squares", [None, [1.0] * 5])
@pytest.mark.parametrize("answer", [0.0, 2.0, 1 / 3, -1e9])
def test_equal_answers_do_not_show_the_noise(answer: float, squares: list | None) -> None:
    """Earlier versions returned the interval from 0 to 0 for a count that noise hides."""
    with pytest.raises(Refused, match="all 5 files are the same"):
        combine_estimates([answer] * 5, squares)
    assert combine_estimates([answer] * 4 + [answer + 1], squares).high > answer


@pytest.mark.parametrize(
    ("answers", "squares", "said"),
    [
        ([1.0], None, "two files or more"),
        ([1.0, 2.0], [1.0], "give 2 variances"),
        ([1.0, 2.0], [1.0, -1.0], "none of them negative"),
        ([1.0, math.nan], None, "finite"),
        ([[1.0], [2.0]], None, "finite numbers, one a file"),
        (["a", "b"], None, "numbers, one a file"),
    ],
)
def test_what_cannot_be_combined(answers: list, squares: list | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        semidp.inference.combine_estimates(answers, squares)


def normal_coverage(files: int, noise: float, sampling: float, repeats: int, rule: float) -> float:
    """How often an interval holds where an answer has noise and files draw it once more; `rule`
    scales the error.
    """
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(repeats):
        estimate = rng.normal(0, math.hypot(noise, sampling))
        answers = estimate + rng.normal(0, noise, files)
        squares = [sampling**2] * files if sampling else None
        combined = combine_estimates(answers.tolist(), squares)
        reach = rule * (combined.high - combined.value)
        held += abs(combined.value) <= reach
    return held / repeats


@pytest.mark.parametrize(("noise", "sampling"), [(1.0, 0.0), (1.0, 1.0), (0.3, 1.0)])
def test_combined_intervals_hold(noise: float, sampling: float) -> None:
    """5 standard errors of a share of 0.95 from 2,000 are 0.024; an error that is 30% too small is
    caught.
    """
    assert abs(normal_coverage(5, noise, sampling, 2000, 1.0) - 0.95) < 0.025
    assert normal_coverage(5, noise, sampling, 2000, 0.7) < 0.925
