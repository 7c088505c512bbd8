"""Intervals from a release: coverage of each kind by simulation, simultaneous coverage, and what
they are of.
"""

import math

import numpy as np
import pytest
from attrs import evolve

from semidp import Budget, Feature, Plan, Release, run
from semidp.errors import InputError
from semidp.inference.answers import Covers, linear_interval, ratio_interval, sampled_rate
from semidp.inference.cell_bounds import CellBounds, whole_interval
from semidp.inference.interval_questions import TableQuestion, simulate_half_widths
from semidp.inference.measured import measured_table
from semidp.inference.ratios import fixed_risk_ratio
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, TablesRequest

FEATURES = [Feature("sex", "fm"), Feature("vote", "yn"), Feature("ward", "abc")]
SHARES = np.array([[[0.15, 0.1, 0.05], [0.05, 0.1, 0.1]], [[0.1, 0.05, 0.1], [0.05, 0.1, 0.05]]])


def people(n: int, seed: int) -> dict[str, list[str]]:
    drawn = np.random.default_rng(seed).choice(SHARES.size, n, p=SHARES.ravel())
    cells = np.unravel_index(drawn, SHARES.shape)
    return {
        feature.name: [feature.levels[place] for place in places]
        for feature, places in zip(FEATURES, cells, strict=True)
    }


def release_of(
    data: dict[str, list[str]], seed: int, invariants: tuple[str, ...] = ("sex", "vote")
) -> Release:
    plan = Plan([TableRequest(["sex", "vote", "ward"], Budget.gdp("0.7"))], invariants, FEATURES)
    return run(plan, data, SeededRandomness(seed))


def truth(data: dict[str, list[str]], **levels: str) -> int:
    rows = zip(*(data[name] for name in levels), strict=True) if levels else [()] * len(data["sex"])
    return sum(row == tuple(levels.values()) for row in rows)


# Coverage: the estimate of one release, and draws of its noise as further releases.

RUNS = 1500
SLACK = 5 * math.sqrt(0.9 * 0.1 / RUNS)  # false alarm 1e-6


def shifted(release: Release, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Many measurements of the table behind a release, by its own mechanism; and that table."""
    measured = measured_table(release, ())
    cells = np.eye(measured.estimate.size).reshape(-1, *measured.schema.shape)
    return measured.simulate_errors(cells, count, SeededRandomness(77)), measured.errors(cells)


def test_intervals_for_the_noise_cover_counts_at_their_level() -> None:
    release = release_of(people(400, 1), 2)
    errors, spread = shifted(release, RUNS)
    fresh = measured_table(release, ()).simulate_errors(
        np.eye(12).reshape(-1, 2, 2, 3), 999, SeededRandomness(3)
    )
    for cell in (0, 7):
        answers = [
            linear_interval(40 + e, spread[cell], fresh[:, cell], (0, 400), 0.9)
            for e in errors[:, cell]
        ]
        assert abs(np.mean([40 in answer for answer in answers]) - 0.9) < SLACK + 5 * math.sqrt(
            0.09 / 999
        )
    ignoring = [
        linear_interval(40 + e, spread[0], 0.5 * fresh[:, 0], (0, 400), 0.9) for e in errors[:, 0]
    ]
    assert np.mean([40 in answer for answer in ignoring]) < 0.8


def test_simultaneous_intervals_hold_at_once() -> None:
    """All twelve cells are inside together in 90% of all releases; single intervals of that level
    are not.
    """
    release = release_of(people(4000, 5), 6)
    errors, spread = shifted(release, RUNS)
    half = simulate_half_widths(measured_table(release, ()), 0.9, 1999, SeededRandomness(3))
    found = release.intervals(level=0.9, draws=1999, randomness=SeededRandomness(3))
    ends = [
        whole_interval(y - h, y + h, (0, 4000))
        for y, h in zip(found.estimate.ravel(), half, strict=True)
    ]
    assert list(zip(found.low.ravel(), found.high.ravel(), strict=True)) == ends
    together = np.mean((np.abs(errors) <= half).all(axis=1))
    assert abs(together - 0.9) < SLACK + 5 * math.sqrt(0.09 / 1999)
    assert np.mean((np.abs(errors) <= 1.645 * spread).all(axis=1)) < 0.6


@pytest.mark.long
def test_ratios_of_noisy_counts_cover_at_their_level() -> None:
    source = np.random.default_rng(8)
    first, second = source.normal(0, 6, (2, 999))
    inside = []
    for e1, e2 in source.normal(0, 6, (RUNS, 2)):
        inside.append(0.4 in ratio_interval((40 + e1, 100 + e2), (first, second), 0.0, 0.9))
    assert abs(np.mean(inside) - 0.9) < SLACK + 5 * math.sqrt(0.09 / 999)
    vague = ratio_interval((4.0, 3.0), (first, second), 0.0, 0.9)
    assert (vague.low, vague.high) == (0.0, 1.0)


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.97])
def test_population_rates_are_covered_with_noise_and_sampling(rate: float) -> None:
    source = np.random.default_rng(9)
    cases = source.binomial(120, rate, RUNS) + source.normal(0, 3, RUNS)
    both = [rate in sampled_rate((float(y), 120.0), (9.0, 0.0, 0.0), 0.9) for y in cases]
    assert abs(np.mean(both) - 0.9) < SLACK + 0.02
    without = [rate in sampled_rate((float(y), 120.0), (0.0, 0.0, 0.0), 0.9) for y in cases]
    assert np.mean(without) < np.mean(both) - 0.02


@pytest.mark.long
def test_differences_with_sampling_have_their_size() -> None:
    """Equal rates in two groups with exact sizes: p-values below 0.05 about that often, and not
    without the noise.
    """
    plan = Plan([TableRequest(["sex", "vote"], Budget.gdp("0.3"))], ["sex"], FEATURES[:2])
    sizes, source = np.array([80, 120]), np.random.default_rng(4)
    release = run(plan, {"sex": ["f"] * 80 + ["m"] * 120, "vote": ["y", "n"] * 100})
    measured = measured_table(release, ("sex", "vote"))
    errors = measured.simulate_errors(
        np.eye(4).reshape(-1, 2, 2), RUNS, SeededRandomness(5)
    ).reshape(-1, 2, 2)
    bounds = CellBounds.from_dataspace(release.scope.dataspace, ["sex", "vote"])
    found, naive = [], []
    for error, votes in zip(errors, source.binomial(sizes, 0.3, (RUNS, 2)), strict=True):
        again = evolve(measured, estimate=np.stack([votes, sizes - votes], axis=1) + error)
        asked = ({"vote": "y"}, {"sex": "m"}, {"sex": "f"})
        answer = TableQuestion(again, 200, bounds, 0.95, True).answer(*asked)
        found.append(answer.p_value <= 0.05 if answer.p_value is not None else False)
        naive.append(abs(answer.value) > 1.96 * math.sqrt(0.3 * 0.7 * (1 / 80 + 1 / 120)))
    assert abs(np.mean(found) - 0.05) < 5 * math.sqrt(0.05 * 0.95 / RUNS)
    assert np.mean(naive) > 0.15


# What exact totals allow

FEW = {"ward": ["a"] * 3 + ["b"] * 30, "vote": ["y"] * 2 + ["n"] + ["y", "n"] * 15}


def few(seed: int) -> Release:
    plan = Plan(
        [TableRequest(["ward", "vote"], Budget.gdp("0.05"))],
        ["ward", "vote"],
        [FEATURES[2], FEATURES[1]],
    )
    return run(plan, FEW, SeededRandomness(seed))


def test_intervals_are_cut_to_what_the_exact_totals_allow() -> None:
    """Three people in ward a, 17 yes of 33: at most 3 of them voted yes, and at least 14 of ward b
    did.
    """
    cells = (
        ({"ward": "a", "vote": "y"}, (0, 3)),
        ({"ward": "b", "vote": "y"}, (14, 17)),
        ({"ward": "c", "vote": "n"}, (0, 0)),
    )
    asked = 0
    for seed in range(5):
        release = few(seed)
        every = release.intervals(draws=199, randomness=SeededRandomness(seed))
        for cell, span in cells:
            answer = release.interval(cell, draws=199, randomness=SeededRandomness(seed))
            place = ("abc".index(cell["ward"]), "yn".index(cell["vote"]))
            for low, high in ((answer.low, answer.high), (every.low[place], every.high[place])):
                assert span[0] <= low <= high <= span[1]
                assert low % 1 == high % 1 == 0
                asked += 1
        rate = release.interval({"vote": "y"}, among={"ward": "b"}, draws=199)
        assert 14 / 30 <= rate.low <= rate.high <= 17 / 30
        gap = release.interval(
            {"vote": "y", "ward": "b"}, minus={"vote": "y", "ward": "a"}, draws=199
        )
        assert 11 <= gap.low <= gap.high <= 17
        rates = release.interval({"vote": "y"}, among={"ward": "b"}, minus={"ward": "a"}, draws=199)
        assert 14 / 30 - 1 - 1e-12 <= rates.low <= rates.high <= 17 / 30 + 1e-12
    assert asked == 30


def test_population_intervals_are_not_cut() -> None:
    answer = few(1).interval({"ward": "a", "vote": "y"}, sampling=True)
    assert answer.high > 3
    assert few(1).intervals(sampling=True).high[0, 0] > 3


def test_cutting_costs_no_coverage() -> None:
    """The truth is a whole number that is possible: an interval holds it before it is cut if and
    only if after.
    """
    source, held = np.random.default_rng(5), 0
    for _ in range(4000):
        first = int(source.integers(0, 5))
        span = (first, first + int(source.integers(0, 6)))
        truth = int(source.integers(span[0], span[1] + 1))
        low = truth + float(source.normal(-1.5, 2))
        high = low + float(source.exponential(3))
        inside = low <= truth <= high
        ends = whole_interval(low, high, span)
        assert not inside or ends[0] <= truth <= ends[1]
        assert span[0] <= ends[0] <= ends[1] <= span[1]
        held += inside
    assert 1000 < held < 3500


def test_rates_of_a_group_and_of_a_larger_one_that_holds_it_keep_their_size() -> None:
    """Equal rates in 90 of 120 records and in all of them: rejected as often as stated.

    Without the covariance the error is 2.6 times as large as it is, and next to nothing is
    rejected.
    """
    plan = Plan([TableRequest(["sex", "vote"], Budget.gdp(2))], ["sex"], FEATURES[:2])
    sizes, source, runs = np.array([90, 30]), np.random.default_rng(4), 600
    release = run(
        plan, {"sex": ["f"] * 90 + ["m"] * 30, "vote": ["y", "n"] * 60}, SeededRandomness(1)
    )
    measured = measured_table(release, ("sex", "vote"))
    errors = measured.simulate_errors(
        np.eye(4).reshape(-1, 2, 2), runs, SeededRandomness(5)
    ).reshape(-1, 2, 2)
    bounds = CellBounds.from_dataspace(release.scope.dataspace, ["sex", "vote"])
    found, independent = [], []
    for error, votes in zip(errors, source.binomial(sizes, 0.4, (runs, 2)), strict=True):
        again = evolve(measured, estimate=np.stack([votes, sizes - votes], axis=1) + error)
        inner, outer = {"sex": "f"}, {"sex": ["f", "m"]}
        answer = TableQuestion(again, 120, bounds, 0.95, True).answer({"vote": "y"}, outer, inner)
        turned = TableQuestion(again, 120, bounds, 0.95, True).answer({"vote": "y"}, inner, outer)
        assert (turned.value, turned.standard_error) == pytest.approx(
            (-answer.value, answer.standard_error)
        )
        found.append(float(answer.p_value or 0.0) <= 0.05)
        independent.append(abs(answer.value) > 1.96 * math.sqrt(0.4 * 0.6 * (1 / 90 + 1 / 120)))
    assert len(found) == runs
    assert abs(np.mean(found) - 0.05) < 5 * math.sqrt(0.05 * 0.95 / runs)
    assert np.mean(independent) < 0.005


def test_rates_of_groups_that_overlap_otherwise_add_their_standard_errors() -> None:
    release = release_of(people(4000, 3), 4, invariants=("sex", "vote", "ward"))
    both = release.interval({"vote": "y"}, among={"sex": "f"}, minus={"ward": "a"}, sampling=True)
    alone = [
        release.interval({"vote": "y"}, among=group, sampling=True)
        for group in ({"sex": "f"}, {"ward": "a"})
    ]
    errors = []
    for answer, group in zip(alone, ({"sex": "f"}, {"ward": "a"}), strict=True):
        records = release.interval(group).value
        errors.append(math.sqrt(answer.value * (1 - answer.value) / records))
    noise = release.interval({"vote": "y"}, among={"sex": "f"}, minus={"ward": "a"}).standard_error
    assert both.standard_error == pytest.approx(math.hypot(noise, sum(errors)), rel=0.02)
    same = release.interval({"vote": "y"}, among={"sex": "f"}, minus={"sex": "f"}, sampling=True)
    assert (same.value, same.standard_error) == (0.0, 0.0)


# What is asked


def test_counts_rates_and_differences_are_those_of_the_records() -> None:
    data = people(4000, 3)
    release = release_of(data, 4)
    women, voters = {"sex": "f"}, {"vote": "y"}
    count = release.interval({**women, "ward": ["a", "b"]}, level=0.999)
    assert truth(data, sex="f", ward="a") + truth(data, sex="f", ward="b") in count
    assert (count.covers, count.exact, count.p_value) == (Covers.noise, True, None)
    exact = release.interval(women)
    assert (exact.low, exact.high, exact.standard_error) == (
        pytest.approx(truth(data, sex="f")),
    ) * 2 + (0.0,)
    rate = release.interval(voters, among=women, level=0.999)
    assert truth(data, sex="f", vote="y") / truth(data, sex="f") in rate
    difference = release.interval({**women, **voters}, minus={"sex": "m", **voters}, level=0.999)
    assert truth(data, sex="f", vote="y") - truth(data, sex="m", vote="y") in difference
    assert difference.p_value is not None
    gap = release.interval(voters, among=women, minus={"sex": "m"}, level=0.999)
    own = [truth(data, sex=s, vote="y") / truth(data, sex=s) for s in "fm"]
    assert own[0] - own[1] in gap
    noisy = release.interval(voters, among={"ward": "a"}, level=0.999)  # wards are not exact
    assert truth(data, ward="a", vote="y") / truth(data, ward="a") in noisy
    assert noisy.exact
    wards = release.interval(voters, among={"ward": "a"}, minus={"ward": "b"})
    assert not wards.exact
    assert wards.covers is Covers.noise


def test_sampling_widens_what_the_noise_alone_leaves() -> None:
    release = release_of(people(4000, 3), 4)
    asked = ({"sex": "f", "vote": "y"}, {"ward": "a"})
    for of, minus, among in (
        (asked[0], None, None),
        (asked[0], asked[1], None),
        ({"vote": "y"}, None, {"sex": "f"}),
    ):
        noise, both = (
            release.interval(of, minus=minus, among=among, sampling=sampling)
            for sampling in (False, True)
        )
        assert both.covers is Covers.both
        assert both.exact == (minus is None)  # tails of a binomial count, or a normal approximation
        assert both.high - both.low > 1.5 * (noise.high - noise.low)
        assert both.standard_error > noise.standard_error
    wide, narrow = (release.intervals(sampling=sampling) for sampling in (True, False))
    assert np.all(wide.high - wide.low > narrow.high - narrow.low)


def test_tables_of_a_product_answer_alike() -> None:
    data = people(4000, 6)
    asked = TablesRequest(
        [TableRequest(["sex", "vote"]), TableRequest(["vote", "ward"])], Budget.gdp(1)
    )
    release = run(Plan([asked], features=FEATURES, invariants=["sex"]), data, SeededRandomness(1))
    found = release.interval({"vote": "y"}, among={"sex": "f"}, level=0.999)
    assert truth(data, sex="f", vote="y") / truth(data, sex="f") in found
    assert release.intervals("vote-ward").table == "vote-ward"
    document = release.intervals("vote-ward").to_json()
    assert set(document["cells"][0]) == {"vote", "ward", "estimate", "low", "high"}
    with pytest.raises(InputError, match="no table with sex, ward"):
        release.interval({"sex": "f", "ward": "a"})


def test_what_is_not_there_is_refused() -> None:
    release = release_of(people(60, 1), 1)
    with pytest.raises(InputError, match="sex has no level 'x'; it has f, m"):
        release.interval({"sex": "x"})
    with pytest.raises(InputError, match="between 0 and 1"):
        release.interval({"sex": "f"}, level=95)
    with pytest.raises(InputError, match="no table 'other'"):
        release.intervals("other")


def test_equal_numbers_that_exact_totals_fix_do_not_differ() -> None:
    """Sums of noisy cells that totals fix are off by rounding alone, which is no difference."""
    data = {"sex": [*"fm"] * 10, "ward": [*"abc"] * 6 + [*"ac"]}
    features = [FEATURES[0], FEATURES[2]]
    plan = Plan([TableRequest(["sex", "ward"], Budget.gdp(1))], ["sex"], features)
    releases = [run(plan, data, SeededRandomness(seed)) for seed in range(4)]
    women, men = {"sex": "f"}, {"sex": "m"}
    sums = [release["table"].estimate.sum(axis=1) for release in releases]
    assert any(one != other for one, other in sums)  # else rounding is not put to the test
    for release in releases:
        assert release.interval(women, minus=men).p_value == 1
        everyone = {"ward": [*"abc"]}
        assert release.interval(everyone, among=women, minus=men).p_value == 1
    quiet = np.zeros(99)
    assert linear_interval(2e-15, 0.0, quiet, (0, 0), 0.9, difference=True).p_value == 1
    assert linear_interval(2e-5, 0.0, quiet, (0, 0), 0.9, difference=True).p_value == 0.01
    rates = (0.3, 0.3 + 1e-16)
    assert fixed_risk_ratio(rates, (quiet, quiet), 0.0, 0.9).p_value == 1
