"""Target errors: the least budget that meets them is found, for one table, for a product, in a
plan.
"""

import json
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve

from semidp import Budget, Feature, InputError, Outcome, Plan, Refused, prepare, run
from semidp.cli import run as semidp
from semidp.present.release import Release
from semidp.publish import GroupRequest, TableRequest
from semidp.publish.residual_mechanism import ResidualMechanism

FEATURES = [Feature("sex", "fm"), Feature("age", "yio"), Feature("region", "nswe")]


def people(n: int = 200) -> dict[str, list[str]]:
    rng = np.random.default_rng(3)
    found = {f.name: [f.levels[i] for i in rng.integers(len(f.levels), size=n)] for f in FEATURES}
    return {**found, "pay": [str(i % 90) for i in range(n)]}


def worst(prepared) -> dict[tuple[str, ...], float]:
    """The largest standard error of every table."""
    found = {}
    for request, mechanism in prepared.calibrated_requests:
        tables = getattr(request, "tables", [request])
        for number, table in enumerate(tables):
            together = isinstance(mechanism, ResidualMechanism)
            errors = mechanism.table_errors(number) if together else mechanism.standard_errors()
            found[tuple(table.features)] = float(errors.max())
    return found


CASES = {
    "one table": {("sex", "age"): 5},
    "a small error": {("sex", "age"): "0.3"},
    "a product": {("sex", "age"): 5, ("age", "region"): None},
    "two targets": {("sex", "age"): 50, ("age", "region"): 4},
}


@pytest.mark.parametrize("case", CASES)
def test_the_budget_meets_the_target_and_a_hundredth_less_would_not(case):
    wanted = [TableRequest(names, target_error=error) for names, error in CASES[case].items()]
    plan = Plan(wanted, ["sex"], features=FEATURES)
    prepared = prepare(plan, people())
    targets = {
        names: float(Fraction(error)) for names, error in CASES[case].items() if error is not None
    }
    found = worst(prepared)
    assert all(found[names] <= target for names, target in targets.items())
    spent = prepared.plan.budget
    assert spent.kind == "gdp"
    assert all(table.target_error is None for table in prepared.plan.tables)
    less = Plan([TableRequest(names) for names in CASES[case]], ["sex"], features=FEATURES)
    missed = worst(prepare(less.with_budget(Budget.gdp(spent.mu * Fraction(99, 100))), people()))
    assert any(missed[names] > target for names, target in targets.items())


def test_a_plan_may_hold_targets_and_what_it_cannot_mean_is_refused():
    text = (
        '[[table]]\nfeatures = ["sex", "age"]\ntarget_error = "5/2"\n[[table]]\nfeatures ='
        ' ["sex"]\nname = "sexes"'
    )
    plan = Plan.from_toml(text)
    assert plan.tables[0].target_error == Fraction(5, 2)
    assert Plan.from_toml(plan.to_toml()) == plan
    done = run(evolve(plan, features=FEATURES), people())
    assert done["sex-age"].standard_errors.max() <= 2.5
    assert done.plan.requests[0].budget == done.plan.budget
    with pytest.raises(InputError, match="a budget and a target error"):
        TableRequest(["sex"], Budget.gdp(1), target_error=5)
    with pytest.raises(InputError, match="a target error and a shared budget"):
        Plan.from_toml(f"mu = 1\n{text}")
    with pytest.raises(InputError, match="above 0"):
        TableRequest(["sex"], target_error=0)
    mean = GroupRequest("mean", Outcome("pay", 0, 100, 100), [["sex"]])
    with pytest.raises(InputError, match="the other statistics budgets of their own"):
        prepare(
            evolve(plan, requests=[*plan.requests, mean], invariants=["sex"], features=FEATURES),
            people(),
        )
    with pytest.raises(Refused, match="no budget that protects"):
        prepare(Plan([TableRequest(["sex"], target_error="1e-200")], features=FEATURES), people())


def test_exact_totals_that_fix_a_table_meet_every_target():
    done = run(Plan([TableRequest(["sex"], target_error="1/1000")], ["sex"]), people())
    assert done.guarantee.tradeoff.is_trivial


@pytest.fixture
def file(tmp_path):
    data = people()
    path = tmp_path / "people.csv"
    path.write_text(
        "\n".join([",".join(data), *map(",".join, zip(*data.values(), strict=True))]) + "\n"
    )
    return str(path)


EXACT = ["--invariant", "sex", "--levels-from-data"]


@pytest.mark.parametrize("others", [[], [["age", "region"]]])
@pytest.mark.parametrize("error", ["1e5", "1e12"])
def test_a_huge_target_error_has_a_least_budget(others, error):
    """Σ k/σ² was rounded to multiples of 2^-80: below μ² = 1e-24 no noise was ever enough, and the
    search went on.
    """
    asked = [TableRequest(["sex", "region"], target_error=error), *map(TableRequest, others)]
    found = worst(prepare(Plan(asked, ["sex"], features=FEATURES), people()))
    assert 0.99 * float(error) < found["sex", "region"] <= float(error)


@pytest.mark.parametrize("error", ["1e15", "1e20", "1e300"])
def test_a_target_error_beyond_the_samplers_is_refused_in_a_sentence(file, capsys, error):
    words = [
        "release",
        file,
        "--table",
        "sex,region",
        *EXACT,
        "--target-error",
        f"sex,region={error}",
        "--dry-run",
    ]
    assert semidp(words) == 2
    assert (
        capsys.readouterr().err
        == "semidp: noise for this target error would not fit in 63 bits: ask for a smaller error\n"
    )


def test_a_tiny_budget_of_a_product_is_met_closely(file, capsys):
    """The cost of what is drawn is within a thousandth of the budget, however small that is."""
    plan = Plan(
        [TableRequest(["sex", "age"]), TableRequest(["age", "region"])], ["sex"], features=FEATURES
    )
    for mu in ("1", "1e-6", "1e-12"):
        ((_, mechanism),) = prepare(plan.with_budget(Budget.gdp(mu)), people()).calibrated_requests
        spent = sum(
            mechanism.space.cost[view] / square for view, square in mechanism.sigma2.items()
        )
        assert (
            mechanism.space.costs.joint(mechanism.sigma2)
            <= float(mechanism.precision)
            == float(Fraction(mu) ** 2)
        )
        assert spent <= 2 * mechanism.precision  # the joint cost may be less than the sum


@pytest.mark.long
def test_the_command_finds_the_budget(file, tmp_path, capsys):
    words = [
        "release",
        file,
        "--table",
        "sex,age",
        "--table",
        "age,region",
        *EXACT,
        "--target-error",
        "region,age=4",
    ]
    assert semidp([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "budget     mu = " in said
    assert "the least for a standard error of 4 in age by region" in said
    assert semidp([*words, "--dry-run", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    largest = {
        part["name"]: part["largest_standard_error"] for part in document["products"][0]["tables"]
    }
    assert 3.9 < largest["age-region"] <= 4
    assert semidp([*words, "--out", str(tmp_path / "r")]) == 0
    assert "budget     mu = " in capsys.readouterr().out
    done = Release.load(tmp_path / "r")
    assert float(done.plan.budget.mu) == document["budget"]["mu"]
    assert done["age-region"].standard_errors.max() <= 4
    one = [
        "release",
        file,
        "--table",
        "sex,age",
        *EXACT,
        "--target-error",
        "sex,age=2",
        "--out",
        str(tmp_path / "one"),
    ]
    assert semidp(one) == 0
    assert Release.load(tmp_path / "one").tables[0].standard_errors.max() <= 2
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'invariants = [["sex"]]\nlevels_from_data = true\n[[table]]\nfeatures = ["sex", "age"]\n'
    )
    capsys.readouterr()
    assert (
        semidp(["release", file, "--plan", str(plan), "--target-error", "sex,age=2", "--dry-run"])
        == 0
    )
    assert "the least for a standard error of 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--target-error", "sex,age=5", "--mu", "1"], "cannot be given together"),
        (
            ["--target-error", "sex,region=5"],
            "no table that shares the budget has these features (sex,age)",
        ),
        (["--target-error", "sex,age"], "such as --target-error county,age=5"),
        (
            ["--target-error", "sex,age=5", "--target-error", "age,sex=4"],
            "given twice for the table age,sex",
        ),
        (["--target-error", "sex,age=soon"], "--target-error"),
        (
            ["--target-error", "sex,age=5", "--set", "mechanism=laplace"],
            "cannot satisfy a gdp budget",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(file, tmp_path, capsys, words, reason):
    out = tmp_path / "out"
    assert semidp(["release", file, "--table", "sex,age", *EXACT, *words, "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert reason in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not out.exists()
