"""The test vectors of the specification: the package agrees with all, and the independent checker
with those that it has rules for.
"""

import importlib.resources
import importlib.util
import itertools
import json
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from semidp.errors import BudgetExceeded, Refused
from semidp.promise.accounting import ledger
from semidp.promise.accounting.account import fits
from semidp.promise.accounting.periods import Attendance, Periods
from semidp.promise.accounting.series import Series, SeriesAccount
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.additive import (
    DiscreteGaussianMechanism,
    LaplaceMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.mechanisms.exponential import rank_space
from semidp.promise.mechanisms.knorm import place_ball
from semidp.promise.noise.distributions import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.moments import Column, moment_space
from semidp.promise.sensitivity.outcome_spaces import sum_space
from semidp.promise.sensitivity.products import product_space
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Adjacency, AdjacencyKind, Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.linked import Link, LinkedDataspace, linked_adjacency
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import (
    Budget,
    approximate,
    approximate_group,
    gaussian,
    laplace,
    pure_to_gdp,
    zcdp,
    zcdp_epsilon_paper,
)
from semidp.promise.tradeoff.composition import compose
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian
from semidp.publish.statistics.regression.designs import Design
from tests.spec.make_vectors import FILES, FOLDER, make_file

Case = dict[str, Any]
LARGE = 40  # the count of every cell where published counts are large


def load(name: str) -> list[Case]:
    document = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    assert document["vectors"] == name
    cases: list[Case] = document["cases"]
    return cases


def test_there_are_enough() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == FILES.keys()
    assert sum(len(load(name)) for name in FILES) >= 1_400


@pytest.mark.parametrize("name", ["curves", "hulls", "ledgers", "moments", "series", "linked"])
def test_the_generator_gives_the_same_again(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text("utf-8") == make_file(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(FILES))
def test_the_generator_gives_all_of_them_again(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text("utf-8") == make_file(name)


def name_features(features: list[int]) -> list[str]:
    return [f"f{f}" for f in features]


def build_space(case: Case, *further: Feature) -> Dataspace:
    """The dataspace of a case: that of its records, or one whose counts are all large."""
    sizes = case["levels"]
    features = [Feature(f"f{f}", tuple(map(str, range(size)))) for f, size in enumerate(sizes)]
    schema = Schema([*features, *further])
    counts = np.full(schema.shape, 0 if "records" in case else LARGE)
    for record in case.get("records", ()):
        counts[tuple(record)] += 1
    margins = [Margin(*name_features(margin)) for margin in case["margins"]]
    return Dataspace.from_table(Table(schema, counts), margins)


def adjacency_of(case: Case, space: Dataspace) -> Adjacency:
    named = case.get("promise", case.get("a"))
    return Exchange.from_dataspace(space) if named == "exchange" else Ball(int(named))


SIXTHS = pytest.mark.parametrize(
    "part", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, 6))]
)
"""A sixth of the cases of what takes seconds; `make test-long` runs the others."""


# --- the package ----------------------------------------------------------------------------------


def test_reach() -> None:
    for case in load("reach"):
        assert semi_adjacency(build_space(case)).worst_case == case["a"], case


@SIXTHS
def test_norms(part: int) -> None:
    refused, cases = 0, load("norms")[part::6]
    for case in cases:
        space = build_space(case)
        expected = (case["l1"], case["l2_squared"], case["linf"])
        try:
            found = sensitivity_space(
                space, adjacency_of(case, space), name_features(case["table"])
            )
        except Refused:
            # Nothing moves although t leaves a choice: the table would go out without noise.
            assert expected == (0, 0, 0), case
            refused += 1
            continue
        assert (found.l1, found.l2_squared, found.linf) == expected, case
    assert refused == sum(map(is_refused, cases))


def is_refused(case: Case) -> bool:
    """Whether no table moves for so few records, and the exact totals do not fix it."""
    is_fixed = any(set(case["table"]) <= set(margin) for margin in case["margins"])
    return not case["l1"] and not is_fixed


def test_norms_of_given_totals() -> None:
    for case in load("given_totals"):
        try:
            found = sensitivity_space(build_space(case), Ball(case["a"]))
        except Refused:
            assert case["l1"] == 0
            continue
        assert found.exact
        norms = (found.l1, found.l2_squared, found.linf)
        assert norms == (case["l1"], case["l2_squared"], case["linf"]), case


def test_sums_and_ranks() -> None:
    equal = Counter[str]()
    for case in load("sums"):
        space = build_space(case)
        adjacency = adjacency_of(case, space)
        outcome = Outcome("y", 0, case["steps"], steps=case["steps"])
        by = [Margin(*name_features(features)) for features in case["by"]]
        sums, ranks = (make(space, adjacency, outcome, by) for make in (sum_space, rank_space))
        for name, found in (
            ("l1", sums.l1),
            ("l2_squared", sums.l2_squared),
            ("ranks", ranks.l1),
            ("ranks_squared", ranks.l2_squared),
        ):
            # Closed forms cover outcomes of any number of values; ranks need three or more of them.
            assert found >= case[name], (name, case)
            equal[name] += found == case[name]
    assert min(equal.values()) >= 54, equal


def test_moments() -> None:
    for case in load("moments"):
        space = build_space(case)
        columns = []
        for place, column in enumerate(case["columns"]):
            names = tuple(name_features(column["features"]))
            columns.append(Column(f"c{place}", names, tuple(map(Fraction, column["values"]))))
        outcome = Outcome("y", 0, case["steps"], steps=case["steps"])
        design = Design(space.schema, tuple(columns))
        found = moment_space(space, adjacency_of(case, space), outcome, design)
        assert (found.l1, found.l2_squared) == (case["l1"], case["l2_squared"]), case


def find_hull_norm(case: Case) -> float:
    space = build_space(case)
    placed = place_ball(sensitivity_space(space, adjacency_of(case, space)))
    point = placed.take(np.array(case["table"], dtype=float))
    return float(placed.ball.norm(point[None])[0]) / placed.stretch


def test_hulls() -> None:
    for case in load("hulls"):
        assert find_hull_norm(case) == pytest.approx(float(Fraction(case["norm"]))), case


@SIXTHS
def test_residuals(part: int) -> None:
    equal = 0
    for case in load("residuals")[part::6]:
        space = build_space(case)
        tables = [name_features(features) for features in case["residuals"]]
        expected = Fraction(case["cost"])
        product = product_space(space, adjacency_of(case, space), tables)
        if len(tables) == 1:
            view = space.schema.view(tables[0])
            found = product.cost.get(view, Fraction(0))
            assert found >= expected, case
            equal += found == expected
        else:
            views = product.measured_residuals
            bound = product.costs.joint(dict.fromkeys(views, Fraction(1)))
            assert bound >= expected, case
            equal += bound == expected
    assert equal >= 3


def test_linked() -> None:
    for case in load("linked"):
        is_unit = case["protect"] == "unit"
        members = Schema([Feature("zone", "ab"), Feature("o1", "xy"), Feature("o2", "xy")])
        units = Schema([Feature("zone", "ab"), Feature("tenure", "pq")])
        own = case["member_blocks"] if is_unit else case["own_blocks"]
        margins = [Margin(f"o{k + 1}") for k in range(own)]
        margins += [Margin("zone")] * case.get("place_blocks", 0)
        of_units = [Margin("tenure")] * case.get("unit_blocks", 0)
        public = LinkedDataspace.joining(
            Dataspace.from_table(Table(members, np.full((2, 2, 2), LARGE)), margins),
            Dataspace.from_table(Table(units, np.full((2, 2), LARGE)), of_units),
            Link(case["protect"], case.get("least", 1), case.get("most", 4), ("size",), "home"),
        )
        found = linked_adjacency(public, AdjacencyKind.ball)
        assert found.a == case["members"], case
        reach = public.reach
        assert case["units"] == {
            "own": reach.own_units,
            "size": reach.size_units,
            "derived": reach.derived_units,
        }
        assert not is_unit or found.units.to_json() == case["units"], case


MECHANISMS = {
    "rounded gaussian": (RoundedGaussianMechanism, Budget.gdp, "mu", "sigma2"),
    "discrete gaussian": (DiscreteGaussianMechanism, Budget.zcdp, "rho", "sigma2"),
    "laplace": (LaplaceMechanism, Budget.pure, "epsilon", "b"),
}
SAMPLERS = {
    "rounded gaussian": RoundedGaussian,
    "discrete gaussian": DiscreteGaussian,
    "laplace": DiscreteLaplace,
}


def test_scales() -> None:
    for case in load("scales"):
        mechanism, budget, name, parameter = MECHANISMS[case["law"]]
        space = sensitivity_space(build_space(case), Ball(case["a"]))
        calibrated = mechanism.calibrate(space, budget(case[name]))
        expected = Fraction(case.get("sigma2", case.get("scale", "0")))
        assert getattr(calibrated, parameter) == expected, case
        assert calibrated.tradeoff.compare(budget(case[name]).tradeoff()).value == "equal"


def test_noise() -> None:
    for case in load("noise"):
        law = SAMPLERS[case["law"]](Fraction(case["parameter"]))
        near = {"rel": 1e-9, "abs": 1e-30}
        assert float(law.pmf(case["k"])) == pytest.approx(float(case["probability"]), **near), case
        assert law.variance == pytest.approx(float(case["variance"]), rel=1e-9), case


def read_curve(case: Case) -> Tradeoff:
    number = Fraction(case["parameter"])
    if case["kind"] == "approximate":
        return approximate(number, Fraction(case["delta"])).group(case["group"])
    return {"gaussian": Gaussian, "zcdp": ZCDP, "laplace": laplace}[case["kind"]](number)


def is_just_above(found: float, text: str, room: float = 1e-9) -> bool:
    """Whether a number is rounded up, by little."""
    expected = Fraction(text)
    last_digit = abs(expected) * Fraction(1, 10**16)
    return (
        expected - last_digit
        <= Fraction(found)
        <= expected * (1 + Fraction(room)) + Fraction(1, 10**18)
    )


def test_curves() -> None:
    for case in load("curves"):
        found = Fraction(read_curve(case)(float(Fraction(case["alpha"]))))
        expected = Fraction(case["value"])
        # The argument is a float, too.
        slack = Fraction(1, 10**14)
        assert expected - max(expected, 1) * Fraction(1, 10**11) <= found <= expected + slack, case


def test_conversions() -> None:
    for case in load("conversions"):
        source = case["from"]
        if source in ("gaussian", "zcdp"):
            curve = (
                Gaussian(Fraction(case["mu_squared"]))
                if source == "gaussian"
                else zcdp(case["rho"])
            )
            if case["find"] == "epsilon":
                assert is_just_above(curve.epsilon(case["delta"]), case["epsilon"]), case
            else:
                assert is_just_above(curve.delta(case["epsilon"]), case["delta"]), case
        elif source == "zcdp, simple":
            assert is_just_above(zcdp_epsilon_paper(case["rho"], case["delta"]), case["epsilon"])
        elif source == "pure":
            curve = approximate(case["epsilon"])
            if case["find"] == "mu":
                assert is_just_above(float(pure_to_gdp(case["epsilon"])), case["mu"]), case
            else:
                assert curve.implied_rho() == Fraction(case["rho"])
        else:
            epsilon, delta = approximate_group(case["epsilon"], case["delta"], case["group"])
            assert epsilon == Fraction(case["group_epsilon"])
            assert is_just_above(delta, case["group_delta"]), case


def test_compositions() -> None:
    for case in load("compositions"):
        squares, rhos = case.get("mu_squared", []), case.get("rho", [])
        pures = case.get("pure", [])
        parts = [
            *(Gaussian(Fraction(m)) for m in squares),
            *map(zcdp, rhos),
            *map(approximate, pures),
        ]
        total = compose(*parts)
        if "delta" in case:
            assert is_just_above(total.delta(case["epsilon"]), case["delta"], 1e-6), case
        elif "mu_squared" in case["total"]:
            assert total.implied_mu_squared() == Fraction(case["total"]["mu_squared"])
        else:
            assert total.implied_rho() == Fraction(case["total"]["rho"]), case


def test_ledgers() -> None:
    for case in load("ledgers"):
        budget = Budget.from_json(case["opened"]["budget"])
        head, curves = ledger._genesis(case["opened"]), []
        for charge in case["charges"]:
            amount = Fraction(charge["amount"])
            curve = {"rho": zcdp, "mu_squared": Gaussian, "epsilon": approximate}[case["amount_of"]]
            asked = [*curves, curve(amount).group(charge["group"])]
            assert fits(asked, budget) == charge["accepted"], (case["opened"], charge)
            if charge["accepted"]:
                curves = asked
                entry = {key: charge[key] for key in ("label", "group", "amount")}
                head = ledger._head(head, entry)
                assert head == charge["head"]
            total = compose(*curves)
            implied = {"rho": total.implied_rho, "mu_squared": total.implied_mu_squared}
            spent = implied.get(case["amount_of"], total.implied_epsilon)()
            assert spent == Fraction(charge["total"])


def test_series() -> None:
    states = Dataspace.from_description("state totals")
    refused = 0
    for case in load("series"):
        attendance = Attendance(case["most"], case["consecutive"])
        account = SeriesAccount(
            Budget.zcdp(Fraction(case["worst"]) or 1), Series("year", attendance)
        )
        for year, rho in enumerate(case["rho"], start=2001):
            if Fraction(rho):
                spent = Guarantee(states, Ball(2, Protection("person", 1)), zcdp(rho))
                account = account.add_charge(spent, "a table", (), Periods("year", (year,)))
        if Fraction(case["worst"]):
            assert account.find_worst()[0] == Fraction(case["worst"]), case
            more = Guarantee(states, Ball(2, Protection("person", 1)), zcdp(case["worst"]))
            worst = max(range(len(case["rho"])), key=lambda place: Fraction(case["rho"][place]))
            with pytest.raises(BudgetExceeded):
                account.add_charge(more, "more", (), Periods("year", (2001 + worst,)))
            refused += 1
    assert refused >= 20


def test_a_wrong_vector_is_noticed() -> None:
    """The twin: numbers that are a little off are no longer agreed with."""
    assert not is_just_above(float(gaussian(1).delta(1)), "0.12693")
    assert not is_just_above(float(gaussian(1).delta(1)), "0.126938")
    case = next(case for case in load("reach") if case["a"] == 3)
    assert semi_adjacency(build_space(case)).worst_case != 2


# --- the independent checker ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def checker() -> Any:
    place = importlib.resources.files("semidp") / "checker" / "semidp_check.py"
    spec = importlib.util.spec_from_file_location("checker_of_vectors", str(place))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_public(check: Any, case: Case) -> Any:
    """The public facts of a case, as the checker has them."""
    sizes = case["levels"]
    features = [
        check.Feature((f"f{f}",), [(str(k),) for k in range(s)]) for f, s in enumerate(sizes)
    ]
    records = case.get("records", [*itertools.product(*map(range, sizes))] * LARGE)
    public = check.Public(features, len(records), [], [])
    for margin in case["margins"]:
        depths = tuple(int(f in margin) for f in range(len(sizes)))
        cells = [
            tuple((str(r[f]),) if f in margin else () for f in range(len(sizes))) for r in records
        ]
        public.margins.append((depths, dict(Counter(cells))))
    return public


@SIXTHS
def test_the_checker_runs_the_vectors(checker: Any, part: int) -> None:
    counts = Counter[str]()
    for case in load("reach")[part::6]:
        public = checker.drop_empty_levels(build_public(checker, case))
        low, high, _ = checker.find_reach(public)
        assert low <= max(case["a"], 1), case
        assert high is None or case["a"] <= high, case
        everything = checker.Query("table", (1,) * len(case["levels"]))
        records = checker.relevant_records(public, [(everything, None)])
        tables = checker.list_tables(public, records, 10_000, math.inf)
        assert checker.list_reach(tables) == case["a"], case
        counts["reach"] += 1
    for case in load("norms")[part::6]:
        depths = tuple(int(f in case["table"]) for f in range(len(case["levels"])))
        try:
            length, square = bound_costs(checker, case).norms(checker.Query("table", depths))
        except checker.NotCovered:
            assert is_refused(case)
            continue
        assert case["l1"] <= length, case
        assert case["l2_squared"] <= square, case
        counts["norms"] += 1
        counts["norms, equal"] += case["l2_squared"] == square
    for case in load("residuals")[part::6]:
        weighted = []
        for features in case["residuals"]:
            depths = tuple(int(f in features) for f in range(len(case["levels"])))
            weighted.append((checker.Query("residual", depths), Fraction(1)))
        assert bound_costs(checker, case).bound(weighted) >= Fraction(case["cost"]), case
        counts["residuals"] += 1
    check_conversions(checker, counts, part)
    assert counts["norms, equal"] >= 0.8 * counts["norms"]
    del counts["norms, equal"]
    assert counts.total() >= 95, counts


def bound_costs(checker: Any, case: Case) -> Any:
    kind = "exchange" if case["promise"] == "exchange" else "ball"
    a = 1 + len(case["margins"]) if kind == "exchange" else int(case["promise"])
    return checker.Costs(build_public(checker, case), checker.Promise(kind, a, True), a)


def check_conversions(checker: Any, counts: Counter[str], part: int) -> None:
    for case in load("conversions")[part::6]:
        if (case["from"], case["find"]) == ("gaussian", "delta"):
            found = checker.gaussian_delta(Fraction(case["mu_squared"]), Fraction(case["epsilon"]))
            assert is_just_above(found, case["delta"]), case
        elif case["from"] == "zcdp":
            epsilon, delta = Fraction(case["epsilon"]), Fraction(case["delta"])
            rho = Fraction(case["rho"])
            room = 1 + Fraction(1, 10**8)
            assert checker.concentrated_holds(rho, epsilon * room, delta)
            assert not checker.concentrated_holds(rho, epsilon / room, delta)
        else:
            continue
        counts["conversions"] += 1
    for case in load("compositions")[part::6]:
        pures = [checker.Guarantee("epsilon", Fraction(e)) for e in case.get("pure", [])]
        squares = [checker.Guarantee("mu", Fraction(m)) for m in case.get("mu_squared", [])]
        rhos = [checker.Guarantee("rho", Fraction(r)) for r in case.get("rho", [])]
        total = checker.compose([*pures, *squares, *rhos])
        if "delta" in case:
            found = checker.pure_delta(total, Fraction(case["epsilon"]))
            assert is_just_above(found, case["delta"]), case
        elif all(Fraction(e) <= 2 for e in case.get("pure", [])):
            (value,) = case["total"].values()
            assert total.value == Fraction(value), case
        counts["compositions"] += 1
