"""``semidp compare``: plans side by side."""

from pathlib import Path

import pytest

from semidp import Plan, run
from tests.cli.conftest import Semidp, one_sentence

PLAN = """invariants = [{exact}]
{more}
[[table]]
features = ["sex", "region"]
{budget}
[[feature]]
name = "sex"
levels = ["f", "m"]
[[feature]]
name = "region"
levels = ["n", "s", "w"]
"""


@pytest.fixture
def plans(tmp_path: Path) -> None:
    def write(name: str, exact: str, budget: str = 'mu = "1"', more: str = "") -> None:
        (tmp_path / name).write_text(PLAN.format(exact=exact, budget=budget, more=more))

    write("base.toml", '"sex"')
    write("exchange.toml", '"sex"', more='adjacency = "exchange"')
    write("more.toml", '"sex", "region"')
    write("half.toml", '"sex"', 'mu = "1/2"')
    write("open.toml", '"sex"', "")
    rows = [f"{'fm'[i % 2]},{'nsw'[i % 3]}" for i in range(60)]
    (tmp_path / "people.csv").write_text("sex,region\n" + "\n".join(rows) + "\n")


@pytest.mark.usefixtures("plans")
def test_half_the_budget_doubles_the_error_and_forgotten_totals_flatter(here: Semidp) -> None:
    words = (
        "base.toml",
        "half.toml",
        "more.toml",
        "exchange.toml",
        "--data",
        "people.csv",
        "--format",
        "json",
    )
    base, half, more, exchange = here("compare", *words).json["plans"]
    errors = [
        plan["tables"][0]["errors"]["standard_error"] for plan in (base, half, more, exchange)
    ]
    # rounding adds a twelfth to each variance
    assert errors[1] == pytest.approx(2 * errors[0], rel=0.02)
    assert errors[3] < errors[0]
    assert base["adjacency"]["used"] == 2
    assert more["adjacency"]["used"] == 3
    assert base["guarantee"]["name"] == "μ = 1 (Gaussian DP)"
    assert base["announced"]["epsilon"] < base["guarantee"]["epsilon"]
    assert half["guarantee"]["epsilon"] < base["guarantee"]["epsilon"]
    assert [plan["plan"] for plan in (base, half)] == ["base.toml", "half.toml"]


@pytest.mark.usefixtures("plans")
def test_it_prints_what_a_dry_run_prints(here: Semidp) -> None:
    words = ("--plan", "base.toml", "--dry-run", "--format", "json")
    rehearsed = here("release", "people.csv", *words).json
    compared = here(
        "compare", "base.toml", "more.toml", "--data", "people.csv", "--format", "json"
    ).json["plans"][0]
    for key, value in compared["tables"][0].items():
        assert rehearsed["tables"][0][key] == value
    assert rehearsed["announced"] == compared["announced"]
    text = here("compare", "base.toml", "more.toml", "--data", "people.csv").out
    for expected in (
        "exact",
        "sex by region",
        "attacker",
        "guarantee",
        "announced",
        "μ = 1 (Gaussian DP)",
    ):
        assert expected in text


@pytest.mark.usefixtures("plans")
def test_without_data_it_compares_for_public_or_any_totals(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "sexes.csv").write_text("sex,count\nf,30\nm,30\n")
    known, _ = here(
        "compare", "base.toml", "half.toml", "--totals", "sexes.csv", "--format", "json"
    ).json["plans"]
    read, _ = here(
        "compare", "base.toml", "half.toml", "--data", "people.csv", "--format", "json"
    ).json["plans"]
    assert known == read
    any_totals, _ = here("compare", "base.toml", "more.toml", "--format", "json").json["plans"]
    assert (any_totals["n"], any_totals["totals"]) == (None, "any")


@pytest.mark.usefixtures("plans")
def test_a_budget_is_for_plans_that_have_none(here: Semidp) -> None:
    assert "no privacy budget" in one_sentence(here("compare", "base.toml", "open.toml"))
    base, given = here("compare", "base.toml", "open.toml", "--mu", "1", "--format", "json").json[
        "plans"
    ]
    assert {**base, "plan": ""} == {**given, "plan": ""}


@pytest.mark.usefixtures("plans")
def test_one_plan_is_no_comparison(here: Semidp) -> None:
    assert "two plans or more" in one_sentence(here("compare", "base.toml"))
    words = ("base.toml", "half.toml", "--data", "people.csv", "--totals", "x.csv")
    assert "not both" in one_sentence(here("compare", *words))


@pytest.mark.usefixtures("plans")
def test_a_broken_plan_is_named(here: Semidp, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("a = = 3\n")
    (tmp_path / "strange.json").write_text('{"tabel": 3}')
    for name, words in (
        ("broken.toml", "not valid TOML"),
        ("strange.json", "tabel"),
        ("open.toml", "no privacy budget"),
    ):
        said = one_sentence(here("compare", "base.toml", name))
        assert f"{name}: " in said
        assert words in said


OUTCOMES = """invariants = ["ward"]
[[group]]
statistic = "proportion"
column = "ok=Y"
by = ["ward"]
mu = "1"
[[answered]]
column = "pay"
by = ["ward"]
bounds = [0, 9]
mu = "{mu}"
"""


@pytest.fixture
def outcomes(tmp_path: Path) -> None:
    """Two plans whose columns are computed from others: whether ok is Y, and who has a pay."""
    for name, mu in (("one.toml", "1"), ("half.toml", "1/2")):
        (tmp_path / name).write_text(OUTCOMES.format(mu=mu))
    rows = [f"{'ab'[i % 2]},{'YN'[i % 3 == 0]},{'' if i % 7 == 0 else i % 9}" for i in range(60)]
    (tmp_path / "wards.csv").write_text("ward,ok,pay\n" + "\n".join(rows) + "\n")


@pytest.mark.usefixtures("outcomes")
def test_plans_of_computed_columns_are_compared_and_audited(here: Semidp) -> None:
    rehearsed = here(
        "release", "wards.csv", "--plan", "one.toml", "--dry-run", "--format", "json"
    ).json
    words = ("one.toml", "half.toml", "--data", "wards.csv", "--format", "json")
    one, half = here("compare", *words).json["plans"]
    assert one["announced"] == rehearsed["announced"]
    assert half["guarantee"]["epsilon"] < one["guarantee"]["epsilon"]
    attack = ("one.toml", "--data", "wards.csv", "--samples", "1000", "--seed", "1")
    assert here("audit", *attack).code in (0, 3)


@pytest.mark.usefixtures("outcomes")
def test_plans_of_computed_columns_are_carried_out_from_python(tmp_path: Path) -> None:
    plan = Plan.from_toml((tmp_path / "one.toml").read_text())
    proportions, answers = run(plan, tmp_path / "wards.csv").results
    assert proportions.name == "proportion-ok=Y"
    assert answers.name == "mean-pay"
