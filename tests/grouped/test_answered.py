"""Those who answered, where who did is private: norms by brute force, Fieller's intervals by
simulation.
"""

import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from tests.rescaled import with_scale

import semidp
from semidp import Budget, Dataspace, Feature, Margin, Outcome, Schema, Table
from semidp.assess import adjacent_datasets
from semidp.assess.adjacent_datasets import ListedExchanges
from semidp.assess.worst_moves import worst_move
from semidp.cli import run as command
from semidp.errors import InputError
from semidp.present.release import Release
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.sensitivity.answered_space import (
    AnsweredSpace,
    answered_space,
    recorded_answered,
)
from semidp.promise.sensitivity.distribution_space import distribution_space
from semidp.promise.sensitivity.outcome_spaces import outcome_exchange, sum_space
from semidp.promise.spaces.adjacency import Ball
from semidp.publish.selection import select_mechanism
from semidp.publish.statistics.answered import AnsweredRequest, AnsweredSums
from semidp.publish.statistics.outcomes.noise_law import simulate_noise

STEPS = 2
OUTCOME = Outcome("y", 0, 1, steps=STEPS)
VALUES = [None, *range(STEPS + 1)]
BUDGETS = {"gaussian": Budget.gdp(1), "laplace": Budget.pure(1)}


def pairs_of(space: AnsweredSpace, records) -> np.ndarray:
    """The query of records (levels…, place in VALUES), put together from its definition, group by
    group.
    """
    schema = space.dataspace.schema
    answered, steps = [], []
    for block in space.blocks:
        axes = [schema.names.index(name) for name in block.names]
        for cell in itertools.product(*(range(schema.shape[axis]) for axis in axes)):
            members = [record for record in records if tuple(record[axis] for axis in axes) == cell]
            values = [VALUES[record[-1]] for record in members if VALUES[record[-1]] is not None]
            answered.append(len(values))
            steps.append(sum(values))
    return space.pairs(np.array(answered), np.array(steps))


def small(counts, margins) -> tuple[Dataspace, Dataspace]:
    """A dataspace, and the same with the outcome (or that it is missing) as a feature that nobody
    publishes.
    """
    counts = np.array(counts)
    features = [
        Feature("ab"[axis], [str(i) for i in range(size)]) for axis, size in enumerate(counts.shape)
    ]
    public = Dataspace.from_table(
        Table(Schema(features), counts), [Margin.from_names(margin) for margin in margins]
    )
    whole = Schema((*features, Feature("y", ["missing", *map(str, range(STEPS + 1))])))
    totals = dict(zip(public.margins, public.totals, strict=True))
    return public, Dataspace.from_totals(whole, totals, public.n)


def coded(whole: Dataspace, dataset) -> list[tuple[int, ...]]:
    features = whole.schema.features
    rows = []
    for record in dataset:
        rows.append(
            tuple(
                feature.levels.index(level) for feature, level in zip(features, record, strict=True)
            )
        )
    return rows


def largest(moves: list[np.ndarray]) -> tuple[int, int, int]:
    sizes = np.abs(np.array(moves))
    return int(sizes.sum(axis=1).max()), int((sizes**2).sum(axis=1).max()), int(sizes.max())


SPACES = [
    ([2, 1], ["a"], [["a"]], True),
    ([3], ["a"], [["a"]], True),
    ([[1, 1], [1, 0]], ["a", "b"], [["a"], ["b"]], True),
    ([[1, 0], [1, 1]], [["a", "b"]], [["a"]], True),
    # a set of one group beside one of two: the three corners of the triangle are needed at once
    ([[2, 0], [1, 0]], ["a", "b"], [["a"], ["b"]], False),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("counts", "margins", "groups", "exact"), SPACES)
def test_no_exchange_moves_pairs_farther_than_the_norms(
    counts, margins, groups, exact: bool
) -> None:
    public, whole = small(counts, margins)
    by = [Margin(*names) for names in groups]
    blocks = ListedExchanges.from_dataspace(whole)
    neighbours = []
    for dataset in adjacent_datasets.datasets(whole):
        one = blocks.encode_records(dataset)
        neighbours.append((one, list(blocks.neighbours(one))))
    for law, budget in BUDGETS.items():
        space = answered_space(public, outcome_exchange(public), OUTCOME, by, budget)
        queries = {one: pairs_of(space, one) for one, _ in neighbours}
        moves = [queries[other] - queries[one] for one, others in neighbours for other in others]
        assert len(moves) > 20
        found = largest(moves)
        assert found[0] <= space.l1
        assert found[1] <= space.l2_squared
        assert found[2] <= space.linf
        assert space.exact is exact
        if exact:
            assert found == (space.l1, space.l2_squared, space.linf)
            worst = worst_move(space)
            assert any(np.array_equal(worst, move) for move in moves)
        else:
            # The bound is reached by the norm of the law. Sums count two groups here, not three:
            # too little.
            share = found[1] / space.l2_squared if law == "gaussian" else found[0] / space.l1
            assert share > 0.999


@pytest.mark.few(8)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("a", [1, 2, 3])
@pytest.mark.parametrize(("counts", "margins", "groups", "exact"), SPACES[:3])
def test_no_ball_moves_pairs_farther_than_the_norms(
    counts, margins, groups, exact: bool, a: int, budget: str
) -> None:
    public, whole = small(counts, margins)
    by = [Margin(*names) for names in groups]
    space = answered_space(public, Ball(a), OUTCOME, by, BUDGETS[budget])
    datasets = [coded(whole, dataset) for dataset in adjacent_datasets.datasets(whole)]
    records = np.array(datasets)
    queries = np.array([pairs_of(space, dataset) for dataset in datasets])
    checked, found = 0, np.zeros(3, dtype=np.int64)
    for number in range(len(records)):
        apart = (records != records[number]).any(axis=2).sum(axis=1)
        near = np.flatnonzero(apart <= a)
        checked += len(near)
        found = np.maximum(found, largest([*(queries[near] - queries[number])]))
    assert checked > 20
    assert (found <= [space.l1, space.l2_squared, space.linf]).all()
    if space.exact:
        assert found.tolist() == [space.l1, space.l2_squared, space.linf]
    assert space.exact or a > 1


def wards(sizes: list[int]) -> Dataspace:
    levels = [chr(97 + number) for number in range(len(sizes))]
    return Dataspace.from_table(Table(Schema([Feature("ward", levels)]), sizes), [Margin("ward")])


def test_the_number_who_answered_costs_the_sum_nothing() -> None:
    public, by = wards([30, 20]), [Margin("ward")]
    for steps in (1, 7, 1000):
        outcome = Outcome("y", 0, 10, steps)
        alone = sum_space(public, Ball(2), outcome, by)
        both = answered_space(public, Ball(2), outcome, by)
        assert both.l2_squared * both.unit**2 == alone.l2_squared * alone.unit**2
        laplace = answered_space(public, Ball(2), outcome, by, Budget.pure(1))
        assert laplace.l1 * laplace.unit == alone.l1 * alone.unit
        # One more than the weight would be felt.
        assert (both.weight + 1) ** 2 + both.half**2 > (2 * both.half) ** 2


@pytest.mark.parametrize("weight", [1, 500, 866, 1000, 1733, 5000])
def test_norms_are_the_longest_sides_of_the_triangle(weight: int) -> None:
    """For any weight of an answer, also those that only a ledger could record."""
    space = answered_space(wards([30, 20]), Ball(1), Outcome("pay", 0, 4, 4), [Margin("ward")])
    space = evolve(space, weight=weight)
    corners = [np.zeros(4, dtype=np.int64)]
    for steps in range(5):
        corners.append(space.pairs(np.array([1, 0]), np.array([steps, 0])))
    sides = [np.abs(one - other) for one, other in itertools.combinations(corners, 2)]
    assert space.norms.l1 == max(int(side.sum()) for side in sides)
    assert space.norms.l2_squared == max(int((side**2).sum()) for side in sides)
    assert space.norms.linf == max(int(side.max()) for side in sides)


@pytest.mark.parametrize("make", [answered_space, distribution_space])
def test_numbers_are_free_in_groups_with_records(make) -> None:
    space = make(wards([3, 0, 2]), Ball(1), Outcome("pay", 0, 4, 4), [Margin("ward")])
    projected = np.array([space.project(row) for row in np.eye(*space.shape)])
    assert np.linalg.matrix_rank(projected) == space.dimension


def test_a_recorded_query_is_read_again() -> None:
    space = answered_space(wards([30, 20]), Ball(2), OUTCOME, [Margin("ward")], Budget.pure(1))
    again = recorded_answered(json.loads(json.dumps(space.query())), space.dataspace, Ball(2))
    assert (again.norms, again.weight, again.shape) == (space.norms, space.weight, space.shape)


def measured(mechanism, noisy: np.ndarray) -> AnsweredSums:
    return AnsweredSums(mechanism, mechanism.restore_measurement(noisy.astype(np.int64), False))


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        (Budget.gdp("0.5"), 100),
        (Budget.pure("0.5"), 100),
        (Budget.zcdp(2), 1),
        (Budget.gdp(200), 1),
    ],
    ids=["gaussian", "laplace", "discrete", "coarse"],
)
def test_intervals_of_means_hold_as_often_as_they_say(budget: Budget, steps: int) -> None:
    """2,000 groups, 1 to 60 answers, means of every size: 95% ± 2 (four standard errors of a share
    of 2,000).
    """
    groups = 2000
    source = np.random.default_rng(20261117)
    answered = source.integers(1, 61, groups)
    shares = source.random(groups)
    total = source.binomial(answered * steps, shares)
    public = _many(groups)
    # zeros and ones are not rounded to their grid
    least, width = (0, 1) if steps == 1 else (-5, 10)
    outcome = Outcome("y", least, least + width, steps)
    space = answered_space(public, Ball(1), outcome, [Margin("ward")], budget)
    mechanism = select_mechanism(space, budget)
    noisy = space.pairs(answered, total) + simulate_noise(mechanism, space.shape, source)
    found = measured(mechanism, noisy).mean_intervals(None, Fraction(95, 100), False)
    truth = least + width * total / (answered * steps)
    held = (found.lower - 1e-9 <= truth) & (truth <= found.upper + 1e-9)
    assert held.mean() >= 0.93
    if mechanism.scale > 30:
        assert held.mean() <= 0.99  # cut to the bounds, where some hold more often
    assert (found.lower >= least).all()
    assert (found.upper <= least + width).all()
    # The twin: half of the noise is believed, and the intervals fail.
    too_sure = measured(with_scale(mechanism, mechanism.scale / 2), noisy).mean_intervals(
        None, Fraction(95, 100), False
    )
    narrow = (too_sure.lower - 1e-9 <= truth) & (truth <= too_sure.upper + 1e-9)
    assert narrow.mean() < 0.9 or mechanism.scale <= 30


def _many(groups: int) -> Dataspace:
    levels = [str(number) for number in range(groups)]
    return Dataspace.from_table(
        Table(Schema([Feature("ward", levels)]), [60] * groups), [Margin("ward")]
    )


def test_the_interval_is_fiellers_where_the_noise_is_normal() -> None:
    """The ends solve (T - θA)² = z²(s² + θ²r²) where they lie within the bounds."""
    space = answered_space(wards([4000]), Ball(1), Outcome("y", -5, 5, 1000), [Margin("ward")])
    mechanism = select_mechanism(space, Budget.gdp(1))
    pairs = measured(mechanism, space.pairs(np.array([300]), np.array([120_000])))
    found = pairs.mean_intervals(None, Fraction(95, 100), False)
    means = pairs.means()
    answered, gap = 300.0, means.values[0] * 300
    s = float(space.unit) * mechanism.scale
    r = mechanism.scale / space.weight
    z = 1.959964
    roots = np.roots([answered**2 - z**2 * r**2, -2 * gap * answered, gap**2 - z**2 * s**2])
    rounding = 0.005  # half a step of the grid
    ends = [found.lower[0] + rounding, found.upper[0] - rounding]
    assert np.sort(ends) == pytest.approx(np.sort(roots), abs=2e-3)
    half_width = (ends[1] - ends[0]) / 2
    assert half_width == pytest.approx(z * means.standard_errors[0], rel=0.02)


PEOPLE = {
    "ward": np.array(["a", "a", "a", "b", "b", "b"] * 20, dtype=object),
    "sex": np.array(["f", "m"] * 60, dtype=object),
    "pay": np.array([10.0, 20.0, np.nan, 40.0, None, None] * 20, dtype=object),
    "ok": np.array(["Y", "N", None, "Y", "Y", None] * 20, dtype=object),
    "passed": np.array([True, False, None, True, None, None] * 20, dtype=object),
    # What pandas makes of zeros and ones where some are missing.
    "share": np.array([1.0, 0.0, np.nan, 1.0, np.nan, np.nan] * 20),
}


def released(asked, column: str, **more) -> Release:
    options = {"mu": 10**5, "randomness": SeededRandomness(1), **more}
    return semidp.release(PEOPLE, asked, missing={column: "private"}, **options)


@pytest.mark.parametrize(
    ("asked", "column", "answered", "values"),
    [
        (semidp.mean("pay", by="ward", bounds=(5, 105)), "pay", [40, 20], [15, 40]),
        (semidp.total("pay", by="ward", bounds=(5, 105)), "pay", [40, 20], [600, 800]),
        (semidp.proportion("ok=Y", by="ward"), "ok", [40, 40], [0.5, 1]),
        (semidp.proportion("passed", by="ward"), "passed", [40, 20], [0.5, 1]),
        (semidp.proportion("share", by="ward"), "share", [40, 20], [0.5, 1]),
    ],
    ids=["mean", "sum", "text", "truth", "floats"],
)
def test_the_statistic_is_of_those_who_answered(asked, column: str, answered, values) -> None:
    release = released(asked, column)
    (result,) = release.answers
    estimates = result.estimates[0]
    assert estimates.counts.tolist() == [60, 60]
    assert estimates["answered"] == pytest.approx(answered, abs=0.1)
    assert estimates.values == pytest.approx(values, rel=0.01)
    assert [margin.names for margin in release.scope.dataspace.margins] == [("ward",)]
    assert release.scope.adjacency.a == 2


def test_a_release_is_read_again_and_computed_again(tmp_path: Path) -> None:
    asked = semidp.mean("pay", by=[["ward"], ["sex"]], bounds=(5, 105))
    release = released(asked, "pay", mu=1, adjacency="exchange")
    release.save(tmp_path / "out")
    assert command(["show", str(tmp_path / "out"), "--quiet"]) == 0
    again = Release.load(tmp_path / "out")
    (result,) = again.answers
    assert list(result.estimates[1].rows()) == list(release.answers[0].estimates[1].rows())
    assert sorted(again.plan.read_as) == [
        ("pay", "missing as 5"),
        ("pay answered", "answered as 1"),
    ]


def test_a_plan_file_asks_for_it(tmp_path: Path) -> None:
    entry = {"column": "pay", "bounds": ["5", "105"], "by": [["ward"]], "mu": "1"}
    plan = semidp.Plan.from_json({"invariants": [["ward"]], "answered": [entry]})
    (request,) = plan.requests
    assert isinstance(request, AnsweredRequest)
    assert semidp.Plan.from_toml(plan.to_toml()) == plan
    release = semidp.run(plan.with_values_read(), PEOPLE)
    assert len(release.answers) == 1


def test_what_cannot_stay_private_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    median = semidp.median("pay", by="ward", bounds=(5, 105))
    with pytest.raises(InputError, match="cannot be private in median-pay"):
        released(median, "pay")
    mean = semidp.mean("pay", by="ward", bounds=(5, 105))
    other = semidp.total("pay", by="ward", bounds=(0, 105))
    with pytest.raises(InputError, match="to be read in two ways"):
        semidp.release(PEOPLE, mean, other, missing={"pay": "private"}, mu=1)
    file = tmp_path / "people.csv"
    file.write_text("ward,pay\na,1\na,\nb,3\n")
    words = [
        "release",
        str(file),
        "--group",
        "ward",
        "--mean",
        "pay",
        "--bounds",
        "pay=0,9",
        "--mu",
        "1",
    ]
    words += ["--missing", "pay=private"]
    assert command([*words, "--out", str(tmp_path / "out"), "--quiet"]) == 0
    for wrong in (["--set", "sampling=true"], ["--set", "differences=true"]):
        assert command([*words, *wrong, "--out", str(tmp_path / "no")]) == 2
        assert "leave sampling and differences out" in capsys.readouterr().err
        assert not (tmp_path / "no").exists()


def test_a_workbook_and_a_page_have_the_digits_that_they_deserve(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    file = tmp_path / "people.csv"
    lines = ["ward,pay"]
    for number in range(400):
        lines.append(f"{'ab'[number % 2]},{'' if number % 5 == 0 else number % 7}")
    file.write_text("\n".join(lines) + "\n")
    words = [
        "release",
        str(file),
        "--group",
        "ward",
        "--mean",
        "pay",
        "--bounds",
        "pay=0,9",
        "--rho",
        "1/2",
    ]
    words += [
        "--missing",
        "pay=private",
        "--write",
        "xlsx",
        "--out",
        str(tmp_path / "out"),
        "--quiet",
    ]
    assert command(words) == 0
    sheet = openpyxl.load_workbook(tmp_path / "out" / "tables.xlsx")["mean-pay"]
    headings = [cell.value for cell in sheet[1]]
    formats = {
        heading: cell.number_format for heading, cell in zip(headings, sheet[2], strict=True)
    }
    # Errors of about 2.3 and 0.11: one digit of the number who answered, more of the mean.
    assert formats["answered"] == "#,##0.0"
    assert formats["answered_error"] == "#,##0.0"
    assert "." in formats["mean"]


@pytest.mark.parametrize("ask", [semidp.mean, semidp.total])
def test_intervals_allow_for_the_grid_of_the_outcome(ask) -> None:
    """All values lie between two steps, and there is next to no noise; some are missing."""
    data = {"ward": [*"ab"] * 40, "pay": [2.4, 2.4, None, None, 2.4, 7.6, None, 2.4] * 10}
    asked = ask("pay", by="ward", bounds=(0, 10), steps=10)
    made = semidp.release(
        data, asked, missing={"pay": "private"}, levels={"ward": ["a", "b"]}, mu=1000
    )
    columns = made.answers[0].estimates[0].to_dict()
    for ward, values in zip("ab", ([2.4, 2.4], [2.4, 7.6, 2.4]), strict=True):
        truth = sum(values) / len(values) if ask is semidp.mean else sum(values) * 10
        place = columns["ward"].index(ward)
        assert columns["lower"][place] <= truth <= columns["upper"][place]
