"""Measurements of real OpenDP beside exact statistics: our number against brute force on all
conforming pairs.
"""

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import opendp.prelude as dp
import polars as pl
import pytest

from semidp.assess import opendp as bridge
from semidp.errors import AdjacencyUnknown, InputError, Refused
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.plan import Plan

dp.enable_features("contrib", "honest-but-curious")

COLUMNS = {"ward": pl.String, "sex": pl.String, "score": pl.Int64}
TOP = 10


def frame(rows: Sequence[tuple[str, str, int]] = ()) -> pl.LazyFrame:
    return pl.LazyFrame(list(rows), schema=COLUMNS, orient="row")


def query(measure: Any, aggregate: Any, by: Sequence[str] = ("ward",), **invariants: str) -> Any:
    """Return a measurement of OpenDP with a noise scale that we choose, and margins with these
    invariants.
    """
    domain = dp.lazyframe_domain(
        [
            dp.series_domain("ward", dp.atom_domain(T="String")),
            dp.series_domain("sex", dp.atom_domain(T="String")),
            dp.series_domain("score", dp.atom_domain(T="i64")),
        ]
    )
    for name, invariant in invariants.items():
        domain = dp.with_margin(
            domain, dp.polars.Margin(by=[name], invariant=invariant, max_length=1000)
        )
    plan = frame().group_by(*by).agg(aggregate)
    return dp.m.make_private_lazyframe(domain, dp.symmetric_distance(), measure, plan, 1.0)


def score_sum(scale: float) -> Any:
    return pl.col("score").fill_null(0).dp.sum((0, TOP), scale=scale)


PURE, ZCDP = dp.max_divergence(), dp.zero_concentrated_divergence()

Rows = tuple[tuple[str, str, int], ...]


def sums(by: int) -> Callable[[Rows], dict[Any, int]]:
    def values(rows: Rows) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for row in rows:
            found[row[by]] = found.get(row[by], 0) + row[2]
        return found

    return values


def lengths(by: int) -> Callable[[Rows], dict[Any, int]]:
    def values(rows: Rows) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for row in rows:
            found[row[by]] = found.get(row[by], 0) + 1
        return found

    return values


def both(rows: Rows) -> dict[Any, int]:
    found: dict[Any, int] = {("sum", key): value for key, value in sums(0)(rows).items()}
    return found | {("len", key): value for key, value in lengths(0)(rows).items()}


def worst(
    values: Callable[[Rows], dict[Any, int]],
    public: Callable[[Rows], Any],
    a: int,
    n: int,
    scale: Callable[[Any], float],
    square: bool,
) -> float:
    """Return the largest loss of Laplace or Gaussian noise between conforming datasets that differ
    in `a` people.
    """
    people = list(itertools.product("ab", "fm", (0, TOP)))
    classes: dict[Any, list[tuple[Rows, dict[Any, int]]]] = {}
    for rows in itertools.product(people, repeat=n):
        classes.setdefault(public(rows), []).append((rows, values(rows)))
    most = 0.0
    for group in classes.values():
        for (one, mine), (other, theirs) in itertools.combinations(group, 2):
            if sum(x != y for x, y in zip(one, other, strict=True)) > a:
                continue
            loss = 0.0
            for key in {*mine, *theirs}:
                change = abs(mine.get(key, 0) - theirs.get(key, 0)) / scale(key)
                loss += change**2 / 2 if square else change
            most = max(most, loss)
    return most


def wards(rows: Rows) -> Any:
    return tuple(sorted(row[0] for row in rows))


def ward_keys(rows: Rows) -> Any:
    return tuple(sorted({row[0] for row in rows}))


def wards_and_sexes(rows: Rows) -> Any:
    return wards(rows), tuple(sorted(row[1] for row in rows))


def number(curve: Tradeoff) -> float:
    loss = curve.implied_epsilon()
    return float(loss if loss is not None else curve.implied_rho())  # type: ignore[arg-type]


def ten(scale: int) -> Callable[[Any], float]:
    return lambda key: float(scale)


LENGTH = dp.len(scale=2.0, signed=True)
CASES: dict[
    str,
    tuple[
        Any, Callable[[Rows], dict[Any, int]], Callable[[Rows], Any], Callable[[Any], float], bool
    ],
] = {
    "sum, lengths, Laplace": (
        query(PURE, score_sum(10.0), ward="lengths"),
        sums(0),
        wards,
        ten(10),
        False,
    ),
    "sum, lengths, Gaussian": (
        query(ZCDP, score_sum(10.0), ward="lengths"),
        sums(0),
        wards,
        ten(10),
        True,
    ),
    "sum, keys, Laplace": (
        query(PURE, score_sum(10.0), ward="keys"),
        sums(0),
        ward_keys,
        ten(10),
        False,
    ),
    "sum, keys, Gaussian": (
        query(ZCDP, score_sum(10.0), ward="keys"),
        sums(0),
        ward_keys,
        ten(10),
        True,
    ),
    "length, keys, Laplace": (
        query(PURE, LENGTH, ward="keys"),
        lengths(0),
        ward_keys,
        ten(2),
        False,
    ),
    "length, keys, Gaussian": (
        query(ZCDP, LENGTH, ward="keys"),
        lengths(0),
        ward_keys,
        ten(2),
        True,
    ),
    "mean, lengths, Laplace": (
        query(PURE, pl.col("score").fill_null(0).dp.mean((0, TOP), scale=10.0), ward="lengths"),
        sums(0),
        wards,
        ten(10),
        False,
    ),
    "mean and length, keys, Laplace": (
        query(PURE, [score_sum(10.0), LENGTH], ward="keys"),
        both,
        ward_keys,
        lambda key: 10.0 if key[0] == "sum" else 2.0,
        False,
    ),
    "sum, two margins, Laplace": (
        query(PURE, score_sum(10.0), ward="lengths", sex="lengths"),
        sums(0),
        wards_and_sexes,
        ten(10),
        False,
    ),
    "sum, two margins, Gaussian": (
        query(ZCDP, score_sum(10.0), ward="lengths", sex="keys"),
        sums(0),
        lambda rows: (wards(rows), tuple(sorted({row[1] for row in rows}))),
        ten(10),
        True,
    ),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("case", CASES)
def test_the_number_is_never_below_the_truth(case: str) -> None:
    measurement, values, public, scale, square = CASES[case]
    found = bridge.guarantee(measurement)
    a = found.guarantee.adjacency.a
    assert a == (3 if "two margins" in case else 2)
    truth = worst(values, public, a, 3, scale, square)
    announced = number(found.announced)
    assert truth > announced, "OpenDP states less than what a pair of conforming datasets shows"
    assert number(found.guarantee.tradeoff) >= truth - 1e-9
    if "lengths" in case and "Laplace" in case:
        assert number(found.guarantee.tradeoff) == pytest.approx(truth), (
            "and no more: the pair attains it"
        )


def test_the_example_of_the_documentation() -> None:
    """Scale 10: 0.0 announced, 2.0 found; the scale 0 that OpenDP chooses by itself: published
    exactly.
    """
    by_us = bridge.guarantee(query(PURE, score_sum(10.0), ward="lengths"))
    assert (by_us.announced.implied_epsilon(), by_us.guarantee.tradeoff.implied_epsilon()) == (0, 2)
    assert by_us.distance == 4
    assert not by_us.published_exactly
    for loss in (dp.loss_of(epsilon=1.0), dp.loss_of(rho=0.5), dp.loss_of(epsilon=1.0, delta=1e-6)):
        context = dp.Context.compositor(
            data=frame([("a", "f", 1), ("a", "m", 2), ("b", "f", 3)]),
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=loss,
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=["ward"], invariant="lengths", max_length=1000)],
        )
        asked = context.query().group_by("ward").agg(pl.col("score").fill_null(0).dp.sum((0, TOP)))
        exact = asked.release().collect().sort("ward")["score"].to_list()
        assert exact == [3, 3], "OpenDP publishes the sums as they are"
        by_opendp = bridge.guarantee(asked)
        assert by_opendp.announced.delta(0) == 0
        assert by_opendp.published_exactly
        assert "published exactly" in by_opendp.explain()
        with pytest.raises(Refused, match="not the Context"):
            bridge.guarantee(context.accountant)


def test_exact_totals_give_the_exact_number_of_records() -> None:
    """Two blocks of two and two: any two people suffice, where names alone need three."""
    schema = Schema([Feature("ward", "ab"), Feature("sex", "fm")])
    public = Dataspace.from_table(Table(schema, [[1, 1], [1, 1]]), [Margin("ward"), Margin("sex")])
    measurement = query(PURE, score_sum(10.0), ward="lengths", sex="lengths")
    exact, by_name = bridge.guarantee(measurement, public), bridge.guarantee(measurement)
    assert (exact.guarantee.adjacency, by_name.guarantee.adjacency) == (Ball(2), Ball(3))
    assert exact.guarantee.dataspace == public
    assert exact.witness is not None
    assert str(exact.witness) in exact.explain()
    less = Dataspace.from_table(Table(schema, [[1, 1], [1, 1]]), [Margin("ward")])
    assert bridge.guarantee(measurement, less).guarantee.adjacency.a == 3, (
        "what the Context holds exact is added"
    )
    plan = Plan(invariants=["ward", "sex", "region"])
    assert bridge.guarantee(measurement, plan).guarantee.adjacency.a == 4
    assert bridge.guarantee(measurement, ["region"], a=5).distance == 10


def test_margins_in_a_circle_need_the_levels_of_their_features() -> None:
    """The pairs of three features: 5 records suffice for two levels each, 13 for three, and more
    for more.
    """
    pairs = [["ward", "sex"], ["sex", "age"], ["ward", "age"]]
    measurement = query(PURE, score_sum(10.0), ward="lengths")
    with pytest.raises(AdjacencyUnknown, match="depends on the levels of ward, sex, age"):
        bridge.guarantee(measurement, pairs)
    declared = Plan(
        invariants=pairs, features=[Feature(name, "ab") for name in ("ward", "sex", "age")]
    )
    assert bridge.guarantee(measurement, declared).guarantee.adjacency.a == 5
    assert bridge.guarantee(measurement, pairs, a=7).guarantee.adjacency.a == 7


def test_keys_do_not_mean_that_a_person_changes_alone() -> None:
    """The only member of a ward must be replaced: conforming pairs of two people, one never
    conforms.
    """
    found = bridge.guarantee(query(PURE, score_sum(10.0), ward="keys"))
    assert found.guarantee.adjacency.a == 2
    assert found.guarantee.dataspace.summary() == "the keys of ward"
    one, other = (("a", "f", 0), ("b", "f", 0)), (("b", "f", 0), ("b", "f", 0))
    assert ward_keys(one) != ward_keys(other)


def test_several_rows_a_person() -> None:
    """Two rows each, people who swap wards: map(2ka), and never below the truth over datasets of
    two people.
    """
    measurement = query(PURE, score_sum(10.0), ward="lengths")
    found = bridge.guarantee(measurement, rows=2)
    assert (found.guarantee.adjacency.a, found.distance) == (2, 8)
    person = list(
        itertools.combinations_with_replacement(itertools.product("ab", "f", (0, TOP)), 2)
    )
    most = 0.0
    for one, other in itertools.product(itertools.product(person, repeat=2), repeat=2):
        mine, theirs = tuple(itertools.chain(*one)), tuple(itertools.chain(*other))
        if wards(mine) == wards(theirs):
            here, there = sums(0)(mine), sums(0)(theirs)
            most = max(most, sum(abs(here.get(key, 0) - there.get(key, 0)) for key in "ab") / 10)
    assert number(found.guarantee.tradeoff) == 4.0 >= most
    assert most > number(bridge.guarantee(measurement).guarantee.tradeoff), (
        "one row each would state too little"
    )


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_a_map_that_was_cut_at_a_group_length_is_refused(longest: int) -> None:
    domain = dp.with_margin(
        dp.lazyframe_domain(
            [
                dp.series_domain(n, dp.atom_domain(T=t))
                for n, t in (("ward", "String"), ("score", "i64"))
            ]
        ),
        dp.polars.Margin(by=["ward"], invariant="lengths", max_length=longest),
    )
    plan = (
        pl.LazyFrame(schema={"ward": pl.String, "score": pl.Int64})
        .group_by("ward")
        .agg(score_sum(10.0))
    )
    measurement = dp.m.make_private_lazyframe(domain, dp.symmetric_distance(), ZCDP, plan, 1.0)
    # the one row of a ward is replaced, which costs 10² / (2 · 10²), and OpenDP states nothing
    if longest == 1:
        assert measurement.map(4) == 0
    with pytest.raises(Refused, match=f"declared maximum length {longest} of ward"):
        bridge.guarantee(measurement)


def classic(metric: Any, noise: Any) -> Any:
    domain = dp.vector_domain(dp.atom_domain(bounds=(0, TOP)), size=50)
    if metric in (dp.change_one_distance(), dp.hamming_distance()):
        return dp.t.make_metric_unbounded(domain, metric) >> dp.t.then_sum() >> noise
    return (domain, metric) >> dp.t.then_sum() >> noise


@pytest.mark.parametrize(
    ("metric", "distance"),
    [
        (dp.symmetric_distance(), 4),
        (dp.insert_delete_distance(), 4),
        (dp.change_one_distance(), 2),
        (dp.hamming_distance(), 2),
    ],
    ids=str,
)
def test_every_distance_of_datasets(metric: Any, distance: int) -> None:
    found = bridge.guarantee(classic(metric, dp.m.then_laplace(10.0)), ["ward"])
    assert found.distance == distance
    assert found.guarantee.tradeoff.implied_epsilon() == 2
    gaussian = bridge.guarantee(classic(metric, dp.m.then_gaussian(10.0)), ["ward"])
    assert gaussian.guarantee.tradeoff.implied_rho() == 2


def test_measures_with_and_without_a_curve() -> None:
    gaussian = classic(dp.symmetric_distance(), dp.m.then_gaussian(10.0))
    smooth = dp.c.make_zCDP_to_approxDP(gaussian)
    fixed = dp.c.make_fix_delta(smooth, 1e-6)
    profile, point, rho = (
        bridge.guarantee(m, ["ward"]).guarantee.tradeoff for m in (smooth, fixed, gaussian)
    )
    assert rho.implied_rho() == Fraction(2)
    loss = fixed.map(4)[0]
    assert point.epsilon("1e-6") == pytest.approx(loss, rel=1e-9)
    assert loss <= profile.epsilon("1e-6") < loss + 0.2, (
        "read at steps of an eighth, on the safe side"
    )
    with pytest.raises(Refused, match="no tradeoff curve"):
        bridge.guarantee(dp.c.make_approximate(gaussian), ["ward"])
    absolute = (dp.atom_domain(T=int), dp.absolute_distance(T=int)) >> dp.m.then_laplace(1.0)
    with pytest.raises(Refused, match="does not count the records"):
        bridge.guarantee(absolute, ["ward"])
    with pytest.raises(InputError, match="give an OpenDP measurement"):
        bridge.guarantee("a text", ["ward"])
    with pytest.raises(InputError, match="a list of margins"):
        bridge.guarantee(gaussian, "ward")
