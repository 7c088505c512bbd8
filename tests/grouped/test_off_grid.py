"""Values that do not lie on the grid: lines cut where they lie, and intervals hold the records."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom
from tests.redrawn import redrawn

import semidp
from semidp import Outcome, Plan, open_source
from semidp.errors import InputError
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.distribution_space import (
    distribution_space,
    recorded_distribution,
)
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.sources.reader import read_histogram
from semidp.publish.statistics.distribution.published import cut_places
from semidp.publish.statistics.quantiles import QuantileRequest
from semidp.publish.statistics.sums import GroupRequest

DRAWS = 60
FALSE_ALARM = 1e-6
MOST_MISSES = int(binom.isf(FALSE_ALARM, DRAWS, 0.05))


def counts_between(outcome: Outcome, values: np.ndarray) -> list[int]:
    data = {"ward": np.full(len(values), "a"), "y": values}
    with open_source(data) as source:
        rows = read_histogram(source, Schema([Feature("ward", ["a"])]), ["ward"], outcome)
    return rows[0].tolist()


def test_every_record_is_cut_at_half_steps_and_at_lines_whatever_the_others_are() -> None:
    """Each value alone, and all together: a record on a line is not below it."""
    values = np.arange(-4, 21) / 4
    checked = 0
    for cuts in itertools.chain.from_iterable(
        itertools.combinations((1, Fraction(5, 4), Fraction(3, 2), 4), size) for size in range(4)
    ):
        outcome = Outcome("y", 0, 4, 4, cuts=cuts)
        edges = np.array(outcome.edges, float)
        assert set(map(float, cuts)) <= set(edges.tolist())
        alone = np.zeros((len(values), len(edges) + 1), dtype=int)
        alone[np.arange(len(values)), [(value >= edges).sum() for value in values]] = 1
        assert counts_between(outcome, values) == alone.sum(axis=0).tolist()
        for place in (8, 9):
            assert counts_between(outcome, values[[place]]) == alone[place].tolist()
            checked += 1
    assert checked == 15 * 2


def test_noise_follows_the_cells_that_lines_add() -> None:
    """Every pair of values, by brute force: the norm is that of the tree with the cut cells."""
    table = Table(Schema([Feature("ward", ["a", "b"])]), [3, 2])
    public = Dataspace.from_table(table, [Margin("ward")])
    checked = 0
    for steps, cuts in itertools.product(range(1, 9), ((), (1,), ("1/3", 1))):
        outcome = Outcome("y", 0, 1, steps, cuts=cuts)
        space = distribution_space(public, Ball(2), outcome, [Margin("ward")])
        cells = len(outcome.edges) + 1
        assert space.tree.values == cells
        largest = 0
        for one, other in itertools.permutations(range(cells), 2):
            change = np.zeros((2, cells), dtype=np.int64)
            change[0, one], change[0, other] = -2, 2
            moved = space.apply_query(change)
            largest = max(largest, int(moved @ moved))
            checked += 1
        assert space.l2_squared == largest
        again = Outcome("y", 0, 1, cells - 1)
        uncut = distribution_space(public, Ball(2), again, [Margin("ward")])
        assert space.l2_squared == uncut.l2_squared
    assert checked > 500


def test_a_line_is_part_of_what_is_recorded() -> None:
    data = {"ward": ["a", "a", "b"], "days": [5.0, 4.9, 7.0]}
    asked = semidp.distribution("days", by="ward", bounds=(0, 10), lines=[5])
    release = semidp.release(data, asked, mu=1)
    (mechanism,) = release.mechanisms
    query = mechanism.space.query()
    assert (query["grid"], query["lines"]) == (10, ["5"])
    assert mechanism.space.outcome == asked.cut_outcome
    # what a ledger computes again from the record
    space = mechanism.space
    again = recorded_distribution(query, space.dataspace, space.adjacency)
    assert (again.outcome, again.l2_squared) == (space.outcome, space.l2_squared)


# --- how often intervals hold ---------------------------------------------------------------------

VALUES = {
    "whole days": (np.random.default_rng(1).negative_binomial(2, 0.27, 4_000), (0, 60), "5"),
    "half days": (np.random.default_rng(2).poisson(9, 4_000) / 2, (0, 60), "5"),
    "cents": (np.random.default_rng(3).poisson(12, 4_000) + 0.95, (0, 40), "10"),
}


@pytest.mark.parametrize("name", VALUES)
def test_intervals_hold_the_records_and_not_their_rounded_values(name: str) -> None:
    """60 releases at 95%. A false alarm has a probability of 1e-6 for each interval; cutting at the
    nearest half step, as before, misses far more often.
    """
    values, bounds, line = VALUES[name]
    data = {"all": np.full(len(values), "x"), "y": values}
    asked = {"by": "all", "bounds": bounds}
    requests = [
        semidp.distribution("y", lines=[line], **asked),
        semidp.quantile(
            "y", "0.1", "0.5", level="0.95", mechanism="selection", by="all", bounds=bounds
        ),
        semidp.mean("y", **asked),
    ]
    budgets = [semidp.Budget.gdp(mu) for mu in (2, 40, 4)]
    requests = [one.with_budget(mu) for one, mu in zip(requests, budgets, strict=True)]
    prepared = semidp.prepare(Plan(requests, [Margin("all")]), data)
    in_order = np.sort(values)
    ranks = [math.ceil(len(values) * q) - 1 for q in (0.1, 0.5)]
    below = float((values < float(line)).mean())
    misses = dict.fromkeys(["share", "tenth", "median", "chosen tenth", "chosen median"], 0)
    misses |= dict.fromkeys(["mean", "band", "cut at a half step", "rounded tenth"], 0)
    for seed in range(DRAWS):
        release = redrawn(prepared, seed)
        (curve,), (chosen,), (mean,) = release.distributions, release.quantiles, release.groups
        by = curve.request.by[0]
        tenth, median = curve.analysis.quantiles(["0.1", "0.5"], by)
        chosen_tenth, chosen_median = chosen.analysis.intervals()
        found = {
            "share": (curve.analysis.shares_below(line), below),
            "tenth": (tenth, in_order[ranks[0]]),
            "median": (median, in_order[ranks[1]]),
            "chosen tenth": (chosen_tenth, in_order[ranks[0]]),
            "chosen median": (chosen_median, in_order[ranks[1]]),
            "mean": (mean.analysis.mean_intervals(), values.mean()),
            # what was printed before: the records whose rounded value lies below the line
            "cut at a half step": (curve.analysis.shares_below(float(line) - 0.5), below),
        }
        for what, (interval, truth) in found.items():
            misses[what] += not interval.lower[0] <= truth <= interval.upper[0]
        truth = np.array([(values < cut).mean() for cut in cut_places(curve.request)])
        low, high = curve.sheets[0]["band_lower"], curve.sheets[0]["band_upper"]
        misses["band"] += not ((low <= truth) & (truth <= high)).all()
        rounded = tenth
        misses["rounded tenth"] += not (
            rounded.lower[0] + 0.5 <= in_order[ranks[0]] <= rounded.upper[0] - 0.5
        )
    twin, without_half = misses.pop("cut at a half step"), misses.pop("rounded tenth")
    assert max(misses.values()) <= MOST_MISSES, misses
    if name != "whole days":  # whole days below 5 are those below 4.5
        assert twin > MOST_MISSES
        assert without_half > MOST_MISSES


def test_a_line_between_cuts_has_the_interval_of_both() -> None:
    values = np.array([1.0, 2.0, 2.0, 2.25, 3.0])
    data = {"all": np.full(5, "x"), "y": values}
    asked = semidp.distribution("y", by="all", bounds=(0, 10), lines=["2.25"])
    (curve,) = semidp.release(data, asked, mu=10**4).distributions
    for line, low, value, high in (
        ("2.25", 0.6, 0.6, 0.6),
        ("1.5", 0.2, 0.2, 0.2),
        ("2", 0.2, 0.4, 0.6),
        ("10", 1.0, 1.0, 1.0),
    ):
        share = curve.analysis.shares_below(line)
        assert [share.lower[0], share.values[0], share.upper[0]] == pytest.approx(
            [low, value, high]
        )


# --- the grid -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "step", "sums", "values"),
    [
        ((0, 60), None, 600_000, 60),
        ((0, 60), 1, 600_000, 60),
        ((0, 60), "1/2", 600_000, 120),
        ((1, 5), 1, 800_000, 4),
        ((0, 1), None, 1_000_000, 1000),
        ((0, 100_000), None, 1_000_000, 1000),
        ((0, "2.5"), "0.5", 1_000_000, 5),
        ((0, 10**7), 1, 10**7, 10**7),
    ],
)
def test_a_unit_is_a_step_of_values_and_on_the_grid_of_sums(bounds, step, sums, values) -> None:
    assert GroupRequest.declare_outcome("y", bounds, step=step).steps == sums
    assert QuantileRequest.declare_outcome("y", bounds, step=step).steps == values
    unit = Fraction(step or 1)
    if step is not None or float(bounds[1]) <= 1000:
        assert (unit / GroupRequest.declare_outcome("y", bounds, step=step).width).denominator == 1


def test_a_step_that_does_not_fit_is_refused() -> None:
    for step in (7, 0, -1):
        with pytest.raises(InputError, match="'y' must be a whole number of steps apart"):
            semidp.mean("y", by="all", bounds=(0, 60), step=step)
    with pytest.raises(InputError, match="given twice"):
        semidp.median("y", by="all", bounds=(0, 60), step=1, steps=60)
