"""Studies without a figure of losses: moves, a(t), compositions, power, subspace DP and the
Census.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from semidp import Dataspace, Feature, Margin, Schema, StructuralZero, Table, semi_adjacency
from semidp.applications import census_studies as census
from semidp.applications import noise_studies as subspace
from semidp.applications import promise_studies as examples
from semidp.applications import promise_studies as moves
from semidp.applications import promise_studies as orders
from semidp.applications.study import STUDIES, Settings, Tidy, find_study

QUICK = [name for name in STUDIES if name not in {"gaussian", "knorm"}]


class Studies(dict[str, Tidy]):
    """Small studies, each computed when a test asks for it first."""

    def __missing__(self, name: str) -> Tidy:
        few = Settings(replicates=2) if name == "inference" else Settings(replicates=20, seed=3)
        self[name] = find_study(name).compute(few)
        return self[name]


@pytest.fixture(scope="module")
def tables() -> Studies:
    return Studies()


def test_the_paper_lists_19_moves_of_31() -> None:
    assert [1 + sum(1 for _ in moves.space(a, (3, 3)).moves()) for a in (2, 3)] == [19, 31]
    assert [(moves.space(a, (3, 3)).l1, moves.space(a, (3, 3)).l2_squared) for a in (2, 3)] == [
        (4, 4),
        (6, 6),
    ]
    assert moves.space(3, (2, 5)).l2_squared == moves.space(2, (2, 5)).l2_squared == 4


@pytest.mark.long
def test_moves_keep_both_margins(tables: Studies) -> None:
    table = tables["sensitivity-space"]
    found = {}
    for name in table.distinct("move"):
        part = table.where(move=name)
        move = np.array(part["change"]).reshape(moves.SHAPE)
        assert not move.sum(axis=0).any()
        assert not move.sum(axis=1).any()
        found[name] = part.records()[0]
    four, cycle = found["four-cell move"], found["three-cycle"]
    assert (four["records"], four["l1"], four["l2_squared"], four["linf"]) == (2, 4, 4, 1)
    assert (cycle["records"], cycle["l1"], cycle["l2_squared"], cycle["linf"]) == (3, 6, 6, 1)
    assert (four["four_cell_norm"], cycle["four_cell_norm"]) == (1, 2)


@pytest.mark.long
def test_examples_of_the_semi_adjacent_parameter(tables: Studies) -> None:
    table = tables["adjacency"]
    assert table["worst_case"] == [2, 0, 3, 2, 4, 3, 2, 3, 5, 3, 2]
    assert table["definition"] == [2, 0, 2, 2, 2, 2, 2, 2, 4, 3, 2]


def test_the_papers_numbers_hold_in_the_worst_case(tables: Studies) -> None:
    for row in tables["adjacency"].records():
        if row["paper"].isdigit():
            assert row["worst_case"] == int(row["paper"])
        elif row["paper"]:
            assert row["worst_case"] <= int(row["paper"].split()[-1])


def test_more_detail_can_need_more_records() -> None:
    """The paper's remark says that a(t) decreases as more detailed margins are published."""
    pairs = next(example for example in examples.EXAMPLES if example.published == "AB, BC, AC")
    single = examples.Example("", "A, B, C", pairs.counts, "")
    assert semi_adjacency(single.dataspace()).worst_case == 3
    assert semi_adjacency(pairs.dataspace()).worst_case == 5


@pytest.mark.long
def test_semi_dp_first_is_never_worse(tables: Studies) -> None:
    table = tables["composition"]
    assert table.columns == ("family", "a", "strategy", "order", "quantity", "at", "value")
    for family in table.distinct("family"):
        part = table.where(family=family)
        first, last = (
            part.where(strategy=name) for name in (orders.SEMI_FIRST, orders.COMPOSITION_FIRST)
        )
        assert set(first["order"]) == ({"equal"} if "Gaussian" in family else {"stronger"})
        curves = [np.array(side.where(quantity="f(alpha)")["value"]) for side in (first, last)]
        assert (curves[0] >= curves[1] - 1e-9).all()
        for quantity in ("epsilon", "delta"):
            pairs = zip(
                first.where(quantity=quantity)["value"],
                last.where(quantity=quantity)["value"],
                strict=True,
            )
            assert all(ours <= theirs + 1e-9 for ours, theirs in pairs)


def test_advantages_of_pure_compositions_by_hand(tables: Studies) -> None:
    """Two mechanisms of ε = 0.5 under A_3, from the corners of the curves and nothing of the
    library.
    """
    part = tables["composition"].where(family="pure: 2 × ε = 0.5", quantity="delta")
    once = _corners([0.0, 1 / (1 + math.exp(-0.5)), 1.0], _pure(0.5))
    thrice = _corners(np.linspace(0, 1, 100_001), lambda x: _pure(0.5)(_pure(0.5)(_pure(0.5)(x))))
    semi_first = _advantage(_product(_masses(thrice), _masses(thrice)))
    both = _curve(_product(_masses(once), _masses(once)))
    grid = np.linspace(0, 1, 100_001)
    grouped = np.interp(np.interp(np.interp(grid, *both), *both), *both)
    assert part.where(strategy=orders.SEMI_FIRST)["value"][0] == pytest.approx(semi_first, abs=1e-4)
    assert part.where(strategy=orders.COMPOSITION_FIRST)["value"][0] == pytest.approx(
        (grid - grouped).max(), abs=1e-4
    )


def test_power_lies_between_naive_and_public(tables: Studies) -> None:
    table = tables["power"]
    for epsilon in table.distinct("epsilon"):
        part = table.where(epsilon=epsilon)
        ours, public, _, corrected = (
            np.array(part.where(test=test)["power"]) for test in part.distinct("test")
        )
        error = np.array(part.where(test="naive, corrected to size alpha")["se"])
        assert ours[0] == pytest.approx(0.05, abs=1e-9)
        assert (ours <= public + 1e-12).all()
        assert (np.diff(ours) > 0).all() or ours[-1] > 0.999
        assert (corrected[1:] <= ours[1:] + FAR * error[1:] + 0.01).all()


FAR = 5.5


def test_subspace_dp_keeps_nothing_across_totals(tables: Studies) -> None:
    for row in tables["subspace-dp"].records():
        assert row["agrees"] == (row["distance"] == 2 and row["other"] != "0 0 0")
        if row["agrees"]:
            assert row["mu"] == pytest.approx(math.sqrt(3) * subspace.SUBSPACE_DP_MU)
            assert abs(row["measured_accuracy"] - row["accuracy"]) < FAR * row["se"]
            assert row["measured_accuracy"] - 0.6914624613 > FAR * row["se"]  # what μ = 1 allows
        else:
            assert row["mu"] == math.inf
            assert row["measured_accuracy"] == 1


def test_the_censuss_numbers() -> None:
    table = census.compute_census()
    rounded = {
        row["a"]: row
        for row in table.where(tables="persons", setting="rounded", level="all").records()
    }
    assert round(rounded[1]["epsilon_paper"], 5) == 17.91528
    assert round(rounded[2]["epsilon_paper"], 5) == 40.95057
    assert (rounded[1]["rho"], rounded[2]["rho"], rounded[3]["rho"]) == (
        Fraction("2.56"),
        Fraction("10.24"),
        Fraction("23.04"),
    )
    assert rounded[1]["epsilon_tight"] == pytest.approx(17.1583, abs=5e-5)
    assert rounded[2]["epsilon_tight"] == pytest.approx(39.8226, abs=5e-5)
    assert rounded[1]["epsilon_gaussian"] == pytest.approx(16.4794, abs=5e-5)
    assert rounded[2]["epsilon_gaussian"] == pytest.approx(38.4050, abs=5e-5)
    exchange = table.where(setting="exchange", adjacency="exchange").records()[0]
    assert exchange["epsilon_gaussian"] == pytest.approx(24.9271, abs=5e-5)
    production = table.where(setting="production", level="all", a=1)["rho"]
    assert [round(float(rho), 4) for rho in production] == [2.5562, 0.0749]


def discrete_epsilon(interval: float) -> float:
    """Epsilon at δ = 1e-10 for one record of the persons tables, accounted noise by noise.

    Each of the 65 queries has independent discrete Gaussian noise with the variance 1/rho of its
    share, and one record changes two of its cells by one. Their privacy losses are rounded up to a
    grid, so that the result exceeds the truth by about 65 times the interval.
    """
    total = privacy_loss_distribution.identity(value_discretization_interval=interval)
    for _, share, _, part in census.budget():
        # Two cells change by one: 2 / (2 σ²) is the rho of the query, so that σ² = 1/rho.
        deviation = 1 / math.sqrt(census.PERSONS * share * part)
        noise = privacy_loss_distribution.from_discrete_gaussian_mechanism(
            deviation, value_discretization_interval=interval
        )
        total = total.compose(noise.self_compose(2))
    return float(total.get_epsilon_for_delta(float(census.DELTA)))


@pytest.mark.long
def test_the_discrete_noise_of_the_census_accounted_query_by_query() -> None:
    production = (
        census.compute_census()
        .where(tables="persons", setting="production", level="all", a=1)
        .records()[0]
    )
    assert production["epsilon_gaussian"] == pytest.approx(16.4652, abs=5e-5)
    # losses are rounded up to a grid: above the truth, and close
    assert production["epsilon_gaussian"] < discrete_epsilon(2e-4) < 16.48
    assert discrete_epsilon(1e-2) < production["epsilon_tight"]


def test_the_levels_of_the_census_add_up() -> None:
    table = census.compute_census()
    assert sum(census.LEVELS.values()) == 4099
    for a in (1, 2, 3):
        levels = [
            table.where(tables="persons", level=level, a=a)["rho"][0] for level in census.LEVELS
        ]
        assert sum(levels) == Fraction(542, 339) ** 2 * a**2


@pytest.mark.parametrize("empty_blocks", [False, True])
def test_blocks_without_housing_leave_two_records(empty_blocks: bool) -> None:
    """Two states with two blocks each and exact state totals; five people, three of them in the
    first state.

    That nobody can live in a block is a structural zero, so all alternatives in it are ruled out.
    """
    blocks = {"A": ("A1", "A2"), "B": ("B1", "B2")}
    names = tuple(name for pair in blocks.values() for name in pair)
    zeros = [
        {"state": state, "block": name} for state in blocks for name in names if name[0] != state
    ]
    zeros += [{"state": "B", "block": "B2"}] if empty_blocks else []
    features = Feature("state", tuple(blocks)), Feature("block", names)
    people = Table(
        Schema(features, tuple(map(StructuralZero.from_pattern, zeros))),
        np.array([[2, 1, 0, 0], [0, 0, 2, 0]]),
    )
    assert semi_adjacency(Dataspace.from_table(people, [Margin("state")])).worst_case == 2


@pytest.mark.long
def test_sizes_and_coverages_have_their_twins(tables: Studies) -> None:
    table = tables["inference"]
    assert set(table.distinct("kind")) == {"size", "coverage"}
    assert set(table.where(kind="size")["nominal"]) == {0.05, 0.01}
    assert set(table.distinct("drawn")) == {"usual", "hard"}
    assert len(table.where(drawn="usual").distinct("experiment")) == 20
    assert len(table.where(drawn="hard").distinct("experiment")) == 20
    usual = table.where(drawn="usual")
    sizes, coverages = (
        usual.where(kind=kind, nominal=level)
        for kind, level in (("size", 0.05), ("coverage", 0.95))
    )
    assert np.mean(sizes["mean"]) == pytest.approx(0.05, abs=0.02)
    assert np.mean(sizes["twin"]) > 0.2
    assert np.mean(coverages["mean"]) == pytest.approx(0.95, abs=0.07)
    assert np.mean(coverages["twin"]) < 0.85


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long) if name == "swapping" else name for name in QUICK],
)
def test_figures_are_labelled(tables: Studies, name: str) -> None:
    figure = find_study(name).plot(tables[name])
    assert figure.axes
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel() or axes.get_yticklabels()
    assert figure._suptitle is not None


def _pure(epsilon: float):  # type: ignore[no-untyped-def]
    return lambda x: np.maximum(math.exp(-epsilon) * x, 1 - math.exp(epsilon) * (1 - np.asarray(x)))


def _corners(grid, curve):  # type: ignore[no-untyped-def]
    grid = np.asarray(grid)
    return grid, np.asarray(curve(grid))


def _masses(corners):  # type: ignore[no-untyped-def]
    return np.stack([np.diff(corners[0]), np.diff(corners[1])], axis=1)


def _merged(masses):  # type: ignore[no-untyped-def]
    """Join outcomes of one likelihood ratio."""
    ratio = np.round(np.log(np.maximum(masses[:, 1], 1e-300) / np.maximum(masses[:, 0], 1e-300)), 6)
    keys, index = np.unique(ratio, return_inverse=True)
    joined = np.zeros((len(keys), 2))
    np.add.at(joined, index, masses)
    return joined


def _product(one, other):  # type: ignore[no-untyped-def]
    one, other = _merged(one), _merged(other)
    return np.array([p * q for p, q in itertools.product(one, other)])


def _advantage(masses) -> float:  # type: ignore[no-untyped-def]
    return float(np.maximum(masses[:, 0] - masses[:, 1], 0).sum())


def _curve(masses):  # type: ignore[no-untyped-def]
    """The corners of f: the mass of each outcome under one and the other, the smallest ratio
    first.
    """
    masses = masses[np.argsort(masses[:, 1] / masses[:, 0])]
    return np.append(0, masses[:, 0].cumsum()), np.append(0, masses[:, 1].cumsum())
