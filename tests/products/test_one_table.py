"""One table with one budget: residuals compete with noise on cells, and any sum of cells has an
exact error.
"""

import json

import numpy as np
import pytest

from semidp import Budget, Feature, InputError, Plan, Release, run
from semidp.assess import claims_of_release
from semidp.cli import run as semidp
from semidp.errors import Refused
from semidp.promise.confidential import reveal
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.sensitivity.products import product_space
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Exchange
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.pipeline import calibrate, prepare
from semidp.publish.product_estimates import estimate_tables
from semidp.publish.recheck import disagreements
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.selection import choose, residual_plan

SIZES = {"sex": 2, "region": 3, "ill": 2}
FEATURES = [
    Feature(name, [f"{name[0]}{level}" for level in range(size)]) for name, size in SIZES.items()
]
COUNTY = Feature.from_paths(
    ["state", "county"], [("a", "x"), ("a", "y"), ("b", "z"), ("b", "u"), ("b", "v")]
)


def people(n: int = 400, features: list[Feature] = FEATURES) -> dict[str, list[str]]:
    rng = np.random.default_rng(5)
    found = {}
    for feature in features:
        leaves = rng.integers(len(feature.levels), size=n)
        for depth, name in enumerate(feature.names):
            found[name] = [feature.path(leaf)[depth] for leaf in leaves]
    return found


def plan(budget: Budget, invariants: list[str], **changes) -> Plan:
    return Plan([TableRequest([*SIZES], budget, **changes)], invariants, features=FEATURES)


WON = plan(Budget.gdp(1), ["sex", "region"])  # total variance 128.8 on residuals, 144.7 on cells
LOST = plan(Budget.gdp(1), [["sex", "region"], "ill"])


def test_the_residual_plan_is_taken_where_it_announces_less_variance_and_only_there():
    for asked, wins in ((WON, True), (LOST, False)):
        prepared = prepare(asked, people())
        mechanism = prepared.mechanisms[0]
        assert isinstance(mechanism, ResidualMechanism) == wins
        cells = choose(
            sensitivity_space(prepared.scope.dataspace, prepared.scope.adjacency), Budget.gdp(1)
        )
        assert mechanism.expected_l2 <= cells.expected_l2
        assert prepared.guarantee.tradeoff == Budget.gdp(1).tradeoff()
        if wins:
            assert mechanism.expected_l2**2 <= 0.95 * cells.expected_l2**2
            assert (
                residual_plan(sensitivity_space(*prepared_space(prepared)), Budget.pure(1), cells)
                is None
            )


def prepared_space(prepared):
    return prepared.scope.dataspace, prepared.scope.adjacency


@pytest.mark.long
def test_a_named_mechanism_and_pure_epsilon_stay_on_the_cells():
    for asked in (
        plan(Budget.gdp(1), ["sex", "region"], mechanism="gaussian"),
        plan(Budget.pure(1), ["sex", "region"]),
    ):
        assert not isinstance(prepare(asked, people()).mechanisms[0], ResidualMechanism)


@pytest.mark.long
def test_a_table_measured_on_residuals_is_published_read_back_checked_and_audited(tmp_path, capsys):
    done = run(WON, people())
    table, result = done.tables[0], done.results[0]
    assert result.noise.mechanism == "residuals"
    assert table.counts.dtype.kind == "i"
    assert table.counts.sum(axis=(1, 2)).tolist() == [
        people()["sex"].count(level) for level in FEATURES[0].levels
    ]
    np.testing.assert_allclose(
        table.estimate.sum(axis=(0, 2)), table.counts.sum(axis=(0, 2)), atol=1e-6
    )
    done.save(tmp_path / "r")
    again = Release.load(tmp_path / "r")
    assert (again.tables[0].estimate == table.estimate).all()
    assert (again.results[0].noisy == result.noisy).all()
    assert again.results[0].residuals.sigma2 == result.residuals.sigma2
    assert again.to_json() == done.to_json()
    assert disagreements(again, json.loads((tmp_path / "r" / "release.json").read_text())) == ()
    assert claims_of_release(again)[0].faults == ()
    assert isinstance(again.other_adjacency_guarantee.adjacency, Exchange)
    assert semidp(["show", str(tmp_path / "r")]) == 0
    assert "residuals" in capsys.readouterr().out
    assert (
        (tmp_path / "r" / "measurements.csv").read_text().startswith("residual,entry,scale,noisy\n")
    )
    again.save(tmp_path / "copy")
    for file in (tmp_path / "r").iterdir():
        assert (tmp_path / "copy" / file.name).read_bytes() == file.read_bytes()


def test_what_auto_chose_earlier_is_not_held_against_a_release(tmp_path):
    """A release of a version whose auto knew no residuals states a Gaussian on cells, which its
    budget allows.
    """
    from attrs import evolve

    named = run(plan(Budget.gdp(1), ["sex", "region"], mechanism="gaussian"), people())

    older = evolve(named, plan=evolve(named.plan, requests=WON.requests))
    assert disagreements(older, older.to_json()) == ()
    assert claims_of_release(older)[0].faults == ()
    assert older.other_adjacency_guarantee is not None


# --- sums of cells --------------------------------------------------------------------------------


def agrees(drawn, announced: float, told: str) -> None:
    """Chi-square of the squares at five standard deviations; a tenth more or less standard error
    would show.
    """
    share = float((np.asarray(drawn) ** 2).mean()) / announced**2
    allowed = 5 * np.sqrt(2 / len(drawn))
    assert abs(share - 1) < allowed, told
    assert abs(share / 0.9**2 - 1) > allowed, "the draws are too few to see a tenth"
    assert abs(share / 1.1**2 - 1) > allowed, "the draws are too few to see a tenth"


CASES = {
    "cells": LOST,
    "residuals": WON,
    "laplace": plan(Budget.pure(1), ["sex"]),
    "nested": Plan(
        [TableRequest(["county", "ill"], Budget.gdp(1))], ["state"], features=[COUNTY, FEATURES[2]]
    ),
    "two budgets": Plan(
        [
            TableRequest(["sex"], Budget.gdp(1), name="one"),
            TableRequest(["ill", "sex"], Budget.gdp(1), name="two"),
        ],
        features=FEATURES,
    ),
    "both kinds": Plan(
        [
            TableRequest(["sex", "ill"], Budget.gdp(1), name="alone"),
            TablesRequest(
                [TableRequest(["sex", "region"]), TableRequest(["region", "ill"])], Budget.gdp(1)
            ),
        ],
        ["sex"],
        features=FEATURES,
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("case", CASES)
def test_any_sum_of_cells_has_an_exact_standard_error(case):
    asked = CASES[case]
    data = people(features=[COUNTY, FEATURES[2]]) if case == "nested" else people()
    rng = np.random.default_rng(2)
    first = run(asked, data, SeededRandomness(0))
    weights = {table.name: rng.integers(-2, 3, size=table.schema.shape) for table in first.tables}
    _, error = first.estimate(weights)
    prepared = prepare(asked, data)
    draws = 20_000
    total = np.zeros(draws)
    for (request, mechanism), values in zip(
        prepared.calibrated_requests, map(reveal, prepared.values), strict=True
    ):

        def weighed(noisy, request=request, mechanism=mechanism) -> float:
            projected = mechanism.publish(noisy)
            if not isinstance(mechanism, ResidualMechanism):
                return float((weights[request.name] * projected).sum())
            named = request.tables
            estimates = estimate_tables(mechanism.space, projected)
            return sum(
                (weights[one.name] * part).sum() for one, part in zip(named, estimates, strict=True)
            )

        origin = weighed(np.zeros_like(values))  # the sum is affine in what is measured
        slopes = [
            weighed(unit.reshape(values.shape)) - origin
            for unit in np.eye(values.size, dtype=np.int64)
        ]
        noisy = mechanism.measure_many(values, draws, SeededRandomness(4))
        total += origin + noisy.reshape(draws, -1) @ np.array(slopes)
    truth = sum(
        float((weights[table.name] * exact_counts(data, table)).sum()) for table in first.tables
    )
    assert abs((total - truth).mean()) < 5 * error / np.sqrt(draws), "unbiased"
    agrees(total - truth, error, case)


def exact_counts(data, table) -> np.ndarray:
    shape, columns = table.schema.shape, []
    for feature in table.schema.features:
        leaves = {path: leaf for leaf, path in enumerate(feature.paths())}
        columns.append(
            [leaves[path] for path in zip(*(data[name] for name in feature.names), strict=True)]
        )
    found = np.zeros(shape, dtype=int)
    np.add.at(found, tuple(np.array(columns)), 1)
    return found


def test_an_exact_total_has_no_error_and_wrong_weights_are_refused(tmp_path):
    for asked in (WON, LOST):
        done = run(asked, people())
        weights = np.zeros(tuple(SIZES.values()))
        weights[1] = 1
        assert done.estimate({"table": weights}) == pytest.approx((people()["sex"].count("s1"), 0))
        assert done.estimate({"table": weights})[1] == 0
        done.save(tmp_path / asked.to_json()["invariants"][0][-1])
        loaded = Release.load(tmp_path / asked.to_json()["invariants"][0][-1])
        weights[0, 0, 0] = 3
        assert loaded.estimate({"table": weights}) == pytest.approx(
            done.estimate({"table": weights})
        )
        with pytest.raises(InputError, match="there is no table 'other'"):
            done.estimate({"other": weights})
        with pytest.raises(InputError, match="shape"):
            done.estimate({"table": [1, 2]})


def test_the_dry_run_and_analyze_say_which(tmp_path, capsys):
    path = tmp_path / "people.csv"
    data = people()
    path.write_text(
        "\n".join([",".join(data), *map(",".join, zip(*data.values(), strict=True))]) + "\n"
    )
    words = [str(path), "--table", "sex,region,ill", "--invariant", "sex", "--invariant", "region"]
    words += ["--levels", "ill=i0,i1", "--mu", "1"]
    assert semidp(["release", *words, "--dry-run"]) == 0
    assert "beyond its totals) for sex by region by ill" in capsys.readouterr().out
    assert semidp(["analyze", *words, "--format", "json"]) == 0
    named = [part["law"] for part in json.loads(capsys.readouterr().out)["mechanisms"]]
    assert named[:2] == ["residuals", "rounded gaussian"]
    assert calibrate(WON, prepare(WON, data).scope).mechanisms[0].name == "residuals"


def priced_residuals(space, budget):
    """What `residual_plan` does where it does not know the answer beforehand; None where it
    cannot.
    """
    try:
        product = product_space(space.dataspace, space.adjacency, [space.schema.names])
        return ResidualMechanism.calibrate(product, budget)
    except Refused:
        return None


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
@pytest.mark.parametrize(
    "exact", [["sex", "region"], ["state", "sex"], ["county"], ["region"]], ids="-".join
)
def test_where_one_residual_varies_pricing_it_would_save_less_than_a_twentieth(exact, adjacency):
    """What is skipped: noise on the one residual has the variance of noise on the cells but for its
    rounding.
    """
    used = [part for part in (*FEATURES, COUNTY) if {*part.names} & {*exact}]
    features = [part.names[0] for part in used]
    compared = 0
    for n in (6, 40, 300):
        for budget in (
            Budget.gdp(1),
            Budget.gdp("1/3"),
            Budget.zcdp("0.05"),
            Budget.approximate(1, "1e-6"),
        ):
            asked = Plan(
                [TableRequest(features, budget)], exact, features=used, adjacency=adjacency
            )
            prepared = prepare(asked, people(n, used))
            space = sensitivity_space(*prepared_space(prepared), features)
            if space.is_zero or not space.one_residual:
                continue
            best = choose(space, budget)
            assert residual_plan(space, budget, best) is None
            priced = priced_residuals(space, budget)
            if priced is not None and getattr(best, "sigma2", 0) >= 4 and space.exact:
                assert priced.expected_l2**2 > 0.95 * best.expected_l2**2
                compared += 1
    assert compared >= (3 if len(exact) == 2 else 0)
