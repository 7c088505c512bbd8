"""Products in plans, releases and on the command line: one budget, tables that agree, nothing
dropped silently.
"""

import csv
import json
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve

from semidp import Budget, BudgetExceeded, Feature, InputError, Ledger, Plan, Refused, Release, run
from semidp.assess import claims_of_release
from semidp.cli import run as semidp
from semidp.present.report.report_page import html
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.schema import StructuralZero
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Margin
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.pipeline import RunOptions, calibrate, prepare
from semidp.publish.placement import Objective
from semidp.publish.recheck import disagreements
from semidp.publish.selection import find_separate_loss
from semidp.publish.statistics.tables.request import list_all_tables

SEXES, AGES, REGIONS = ["f", "m"], ["y", "i", "o"], ["n", "s", "w", "e"]


FEATURES = [Feature("sex", SEXES), Feature("age", AGES), Feature("region", REGIONS)]


def people(n: int = 300) -> dict[str, list[str]]:
    rng = np.random.default_rng(7)
    return {
        "sex": [SEXES[i] for i in rng.integers(2, size=n)],
        "age": [AGES[i] for i in rng.integers(3, size=n)],
        "region": [REGIONS[i] for i in rng.integers(4, size=n)],
    }


@pytest.fixture
def file(tmp_path):
    data = people()
    path = tmp_path / "people.csv"
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(data)
        writer.writerows(zip(*data.values(), strict=True))
    return path


def plan(budget=None, **changes) -> Plan:
    tables = [TableRequest(["sex", "age"]), TableRequest(["age", "region"], weight=4)]
    product = TablesRequest(tables, budget or Budget.gdp(1))
    return Plan([product], invariants=["sex", "region"], features=FEATURES, **changes)


@pytest.fixture
def command(capfd, monkeypatch):
    """Run a command; return what it prints, or the sentence that it fails with."""
    monkeypatch.setenv("NO_COLOR", "1")

    def said(*words: object, code: int = 0) -> str:
        capfd.readouterr()
        assert semidp([str(word) for word in words]) == code
        out, err = capfd.readouterr()
        if code == 2:
            assert out == ""
            assert len(err.strip().splitlines()) == 1
        return err if code == 2 else out

    return said


@pytest.mark.parametrize(
    "budget", [Budget.gdp(1), Budget.zcdp("1/2"), Budget.approximate(1, "1e-6")]
)
def test_tables_agree_in_estimates_and_in_whole_numbers_and_keep_exact_totals(budget):
    data = people()
    done = run(plan(budget), data)
    assert done.private
    sexes, regions = done["sex-age"], done["age-region"]
    np.testing.assert_allclose(sexes.estimate.sum(axis=0), regions.estimate.sum(axis=1), atol=1e-6)
    assert (sexes.counts.sum(axis=0) == regions.counts.sum(axis=1)).all()
    assert sexes.counts.sum(axis=1).tolist() == [data["sex"].count(sex) for sex in SEXES]
    assert regions.counts.sum(axis=0).tolist() == [
        data["region"].count(region) for region in REGIONS
    ]
    assert min(sexes.counts.min(), regions.counts.min()) >= 0
    assert {sexes.counts.dtype.kind, regions.counts.dtype.kind} == {"i"}
    assert done.guarantee.adjacency.a == 3
    if budget.kind != "approximate":
        assert done.guarantee.tradeoff == budget.tradeoff()


def test_a_release_reads_back_the_same(tmp_path):
    done = run(plan(), people())
    done.save(tmp_path)
    again = Release.load(tmp_path)
    assert again.plan == done.plan
    assert again.guarantee.tradeoff == done.guarantee.tradeoff
    assert again.results[0].residuals.sigma2 == done.results[0].residuals.sigma2
    for one, other in zip(done.tables, again.tables, strict=True):
        assert (one.counts == other.counts).all()
        np.testing.assert_allclose(one.estimate, other.estimate, atol=1e-12)
        np.testing.assert_allclose(one.standard_errors, other.standard_errors, rtol=1e-12)
        assert one.fitted == other.fitted
    weights = {"sex-age": np.eye(2, 3), "age-region": np.ones((3, 4))}
    assert again.estimate(weights) == pytest.approx(done.estimate(weights))
    rows = list(csv.DictReader((tmp_path / "age-region.csv").read_text().splitlines()))
    assert list(rows[0]) == [
        "age",
        "region",
        "estimate",
        "standard_error",
        "estimate_low",
        "estimate_high",
        "count",
    ]
    row = rows[5]
    middle, half = float(row["estimate"]), done["age-region"].half_widths.ravel()[5]
    assert float(row["estimate_low"]) == pytest.approx(middle - half, abs=2e-6)
    assert float(row["estimate_high"]) == pytest.approx(middle + half, abs=2e-6)
    assert (
        (tmp_path / "product-measurements.csv")
        .read_text()
        .startswith("residual,entry,scale,noisy\n")
    )


def test_a_changed_count_is_found_on_loading(tmp_path):
    done = run(plan(), people())
    done.save(tmp_path)
    file = tmp_path / "sex-age.csv"
    file.write_text(file.read_text().replace("f,y,", "f,y,1", 1))
    with pytest.raises(InputError, match="changed after"):
        Release.load(tmp_path)


def test_plans_are_written_and_read_back_with_weights_and_objective():
    asked = plan()
    assert Plan.from_toml(asked.to_toml()) == asked
    assert Plan.from_json(json.loads(json.dumps(asked.to_json()))) == asked
    text = """
        mu = 1
        objective = "largest"
        invariants = [["sex"]]
        all_of = ["sex", "age", "region"]
        [[table]]
        features = ["sex"]
        name = "sexes"
        weight = 4
        [[table]]
        features = ["sex", "age", "region"]
        rho = "1/10"
    """
    read = Plan.from_toml(text)
    alone, shared = read.requests
    assert [table.name for table in shared.tables] == [
        "sexes",
        "sex-age",
        "sex-region",
        "age-region",
    ]
    assert shared.tables[0].weight == 4
    assert shared.objective is Objective.largest
    assert alone.budget == Budget.zcdp("1/10")
    assert Plan.from_toml(read.to_toml()) == read


def test_a_single_table_with_a_budget_at_the_top_is_an_ordinary_one():
    read = Plan.from_toml('rho = "1/2"\n[[table]]\nfeatures = ["sex", "age"]')
    assert read.requests == (TablesRequest([TableRequest(["sex", "age"])], Budget.zcdp("1/2")),)
    assert read == Plan([TableRequest(["sex", "age"], Budget.zcdp("1/2"))])


def test_pure_epsilon_is_shared_table_by_table():
    both = TablesRequest([TableRequest(["sex"]), TableRequest(["age"])])
    assert [(request.name, request.budget) for request in both.dividing(Budget.pure(1))] == [
        ("sex", Budget.pure(Fraction(1, 2))),
        ("age", Budget.pure(Fraction(1, 2))),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('objective = "total"\n[[table]]\nfeatures = ["a"]', "objective is for tables that share"),
        ('mu = 1\n[[table]]\nfeatures = ["a"]\nmu = 1', "each has its own"),
        ('mu = 1\nall_of = ["a", "b"]\norder = 3', "whole number from 1 to 2"),
        ('mu = 1\norder = 2\n[[table]]\nfeatures = ["a"]', "give all_of"),
        (
            'mu = 1\nall_of = ["a", "b"]\n[[table]]\nfeatures = ["b", "c"]\nmechanism = "gaussian"',
            "no mechanism of its",
        ),
        ('[[table]]\nfeatures = ["a"]\nweight = 2\nmu = 1', "a weight is for tables that share"),
        (
            'mu = 1\nall_of = ["a", "b", "c"]\n[[table]]\nfeatures = ["b", "a"]\nweight = -1',
            "above 0",
        ),
    ],
)
def test_what_a_plan_cannot_mean_is_refused(text, reason):
    with pytest.raises(InputError, match=reason):
        Plan.from_toml(text)


def test_the_ledger_is_charged_once_for_all_tables(tmp_path):
    book = Ledger.create(tmp_path / "book.json", Budget.gdp("1.2"))
    run(plan(), people(), RunOptions(ledger=book))
    assert len(book.account().charges) == 1
    with pytest.raises(BudgetExceeded):
        run(plan(), people(), RunOptions(ledger=book))


def test_a_seed_marks_the_product_not_private_and_repeats():
    first, second = (run(plan(), people(), SeededRandomness(3)) for _ in range(2))
    assert not first.private
    assert (first.results[0].noisy == second.results[0].noisy).all()


def test_an_audit_reads_the_claim_and_finds_missing_noise():
    done = run(plan(), people())
    assert claims_of_release(done)[0].faults == ()
    product = done.results[0]
    least = min(product.residuals.sigma2, key=product.residuals.sigma2.get)
    less = {**product.residuals.sigma2, least: product.residuals.sigma2[least] * Fraction(9, 10)}
    wrong = evolve(product, residuals=evolve(product.residuals, sigma2=less))
    assert (
        "less noise on a residual than its budget needs"
        in claims_of_release(evolve(done, published=lambda: (wrong,)))[0].faults[0]
    )


def test_everything_exact_needs_no_noise(tmp_path):
    tables = [TableRequest(["sex"]), TableRequest(["region"])]
    asked = Plan(
        [TablesRequest(tables, Budget.gdp(1))], invariants=[["sex", "region"]], features=FEATURES
    )
    done = run(asked, people())
    data = people()
    assert done.results[0].noise.absent
    assert done["sex"].counts.tolist() == [data["sex"].count(sex) for sex in SEXES]
    assert done.guarantee.tradeoff.is_trivial
    done.save(tmp_path)
    assert Release.load(tmp_path)["region"].standard_errors.max() == 0
    assert claims_of_release(done)[0].faults == ()
    assert disagreements(done, done.to_json()) == ()


@pytest.mark.long
def test_the_report_shows_the_tables_and_how_they_hang_together():
    done = run(plan(), people())
    page = html(done)
    for words in (
        "Published tables from one budget",
        "sex-age",
        "the same number",
        "age-region.csv",
    ):
        assert words in page
    product = done.results[0]
    assert product.noise.expected_l2 < product.one_by_one_l2 < product.noise.naive_l2
    for words in (
        "one by one,",
        (
            "promises μ = 1 (Gaussian DP) for any 3 records that keep the exact totals. The tables"
            " measured one by one"
        ),
        (
            "Ordinary differential privacy promises it for any 3 records, whether they keep the"
            " totals or not"
        ),
        "How the tables fit together",
        "age (age-region)",
        "there is a set of records that has all of them",
        "The whole numbers lie ",
        "Published counts: sex by age",
    ):
        assert words in page, words
    circle = TablesRequest(list_all_tables(["sex", "age", "region"]), Budget.gdp(1))
    asked = Plan([circle], invariants=["sex"], features=FEATURES, adjacency="exchange")
    page = html(run(asked, people()))
    assert "hang together in a circle" in page
    assert (
        "promises μ = 1 (Gaussian DP) for exchanges of one person (not any records that change at"
        " once)" in page
    )


def test_tables_one_by_one_are_compared_at_the_same_guarantee():
    """By hand: each table alone has noise Δ2² at its own budget; with the best split (Σ sqrt(trace
    Δ2²))².
    """
    from semidp.promise.sensitivity.table_spaces import sensitivity_space

    mechanism = prepare(plan(), people()).mechanisms[0]
    space = mechanism.space
    total = 0.0
    for names in (["sex", "age"], ["age", "region"]):
        alone = sensitivity_space(space.dataspace, space.adjacency, names)
        total += np.sqrt(alone.dimension * alone.l2_squared)
    assert find_separate_loss(mechanism) == pytest.approx(total)


def test_a_release_from_strangers_is_computed_again():
    done = run(plan(), people())
    assert disagreements(done, done.to_json()) == ()
    product = done.results[0]
    least = min(product.residuals.sigma2, key=product.residuals.sigma2.get)
    less = {**product.residuals.sigma2, least: product.residuals.sigma2[least] / 2}
    told = evolve(
        done,
        published=lambda: (evolve(product, residuals=evolve(product.residuals, sigma2=less)),),
    )
    assert any("less noise" in sentence for sentence in disagreements(told, told.to_json()))


# --- the command line -----------------------------------------------------------------------------


EXACT = ("--invariant", "sex", "--invariant", "region", "--levels", "age=y,i,o")


@pytest.mark.long
def test_tables_given_twice_share_the_budget_and_none_is_dropped(command, file, tmp_path):
    out = tmp_path / "product"
    text = command(
        "release",
        file,
        "--table",
        "sex,age",
        "--table",
        "age,region",
        *EXACT,
        "--mu",
        1,
        "--out",
        out,
    )
    assert "sex-age: standard error" in text
    assert {path.name for path in out.iterdir()} == {
        *("csv-metadata.json", "sex-age.csv", "age-region.csv", "product-measurements.csv"),
        *("release.json", "report.html"),
        *("exact-sex.csv", "exact-region.csv"),
    }
    assert json.loads((out / "release.json").read_text())["budget"] == {"kind": "gdp", "mu": 1}
    shown = command("show", out)
    assert "age-region: standard error" in shown
    loaded = Release.load(out)
    assert (loaded["sex-age"].counts.sum(axis=0) == loaded["age-region"].counts.sum(1)).all()


def test_the_standard_error_of_every_table_is_known_before_anything_is_drawn(command, file):
    words = (
        "release",
        file,
        "--all-pairs",
        "sex,age,region",
        *EXACT,
        "--rho",
        1,
        "--dry-run",
        "--format",
        "json",
    )
    found = json.loads(command(*words))
    assert [table["name"] for table in found["products"][0]["tables"]] == [
        "sex-age",
        "sex-region",
        "age-region",
    ]
    asked = Plan(
        [TablesRequest(list_all_tables(["sex", "age", "region"]), Budget.zcdp(1))],
        invariants=["sex", "region"],
        features=[Feature("age", AGES)],
    )
    mechanism = calibrate(asked, prepare(asked, people()).scope).mechanisms[0]
    for number, table in enumerate(found["products"][0]["tables"]):
        assert table["largest_standard_error"] == pytest.approx(
            float(mechanism.table_errors(number).max())
        )
    text = command(*words[:-2])
    assert "age-region: standard error" in text
    assert "nothing was drawn" in text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--table", "sex,age", "--table", "age,sex", "--mu", "1"), "asked for twice"),
        (("--table", "sex,age", "--all-pairs", "sex,age", "--mu", "1"), "asked for twice"),
        (
            (
                "--table",
                "sex,age",
                "--table",
                "age,region",
                "--mu",
                "1",
                "--set",
                "mechanism=gaussian",
            ),
            "mechanism out",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(command, file, tmp_path, words, reason):
    assert reason in command("release", file, *words, *EXACT, "--out", tmp_path / "out", code=2)
    assert not (tmp_path / "out").exists()


def test_pure_epsilon_on_the_command_line_splits_it_over_the_tables(command, file, tmp_path):
    out = tmp_path / "pure"
    command(
        "release",
        file,
        "--table",
        "sex,age",
        "--table",
        "age,region",
        *EXACT,
        "--epsilon",
        1,
        "--out",
        out,
    )
    loaded = Release.load(out)
    assert [table.name for table in loaded.tables] == ["sex-age", "age-region"]
    assert loaded.plan.budget == Budget.pure(1)


def test_analyze_looks_at_one_table(command, file):
    assert "one --table" in command(
        "analyze", file, "--table", "sex", "--table", "age", *EXACT, code=2
    )


@pytest.mark.long
def test_exchange_costs_less_and_its_report_says_what_the_ball_gets(command, file, tmp_path):
    out = tmp_path / "exchange"
    words = (
        "release",
        file,
        "--table",
        "sex,age",
        "--table",
        "age,region",
        *EXACT,
        "--mu",
        1,
        "--adjacency",
        "exchange",
    )
    command(*words, "--out", out)
    done = Release.load(out)
    ball = run(plan(), people())
    assert isinstance(done.guarantee.adjacency, Exchange)
    assert done["sex-age"].standard_errors.max() < ball["sex-age"].standard_errors.max()
    implied = done.other_adjacency_guarantee
    assert isinstance(implied.adjacency, Ball)
    space = product_space(
        done.scope.dataspace, implied.adjacency, [["sex", "age"], ["age", "region"]]
    )
    worst = sum(
        space.cost[view] / square for view, square in done.results[0].residuals.sigma2.items()
    )
    assert 2 < implied.tradeoff.mu_squared <= worst * (1 + Fraction(1, 10**6))
    found = command("audit", out, "--samples", 40_000, "--seed", 1)
    assert "survives" in found
    assert float(found.split("mu is at least ")[1].split(",")[0]) > 0.7


@pytest.mark.long
def test_an_audit_of_the_whole_vector_survives_and_attains_most_of_the_claim(
    command, file, tmp_path
):
    out = tmp_path / "audited"
    command(
        "release",
        file,
        "--table",
        "sex,age",
        "--table",
        "age,region",
        *EXACT,
        "--mu",
        1,
        "--out",
        out,
    )
    found = command("audit", out, "--samples", 40_000, "--seed", 1)
    assert "survives" in found
    measured = float(found.split("mu is at least ")[1].split(",")[0])
    assert 0.85 < measured <= 1


def with_holes():
    """A plan with a structural zero, one with an empty cell of a joint margin, and data for
    each.
    """
    zeros = plan(
        Budget.zcdp(1), structural_zeros=[StructuralZero.from_pattern({"sex": "f", "age": "y"})]
    )
    data = people()
    data["sex"] = [
        "m" if age == "y" else sex for sex, age in zip(data["sex"], data["age"], strict=True)
    ]
    pairs = zip(people()["sex"], people()["region"], strict=True)
    empty = {**people(), "sex": ["f" if region == "n" else sex for sex, region in pairs]}
    return {
        "structural zeros": (zeros, data),
        "a joint margin": (evolve(plan(), invariants=[Margin("sex", "region")]), empty),
    }


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["structural zeros", "a joint margin"])
def test_tables_with_impossible_cells_share_a_budget_and_agree(tmp_path, name):
    asked, data = with_holes()[name]
    done = run(asked, data)
    assert len(done.results) == 1
    assert not any("one by one" in said for said in done.scope.warnings)
    first, second = done.tables
    np.testing.assert_allclose(first.estimate.sum(axis=0), second.estimate.sum(axis=1), atol=1e-6)
    assert (first.counts.sum(axis=0) == second.counts.sum(axis=1)).all()
    if name == "structural zeros":
        assert first.estimate[0, 0] == first.counts[0, 0] == first.standard_errors[0, 0] == 0
    done.save(tmp_path / "release")
    loaded = Release.load(tmp_path / "release")
    assert (
        disagreements(loaded, json.loads((tmp_path / "release" / "release.json").read_text())) == ()
    )


def test_tables_with_too_many_impossible_cells_are_measured_one_by_one_and_said_to_be(
    tmp_path, monkeypatch
):
    from semidp.promise.sensitivity import products

    monkeypatch.setattr(products, "_MOST_CONDITIONED", 1)
    asked, data = with_holes()["structural zeros"]
    done = run(asked, data)
    assert len(done.results) == 2
    assert [table.name for table in done.tables] == ["sex-age", "age-region"]
    assert any("one by one" in said and "impossible cells" in said for said in done.scope.warnings)
    assert done.guarantee.tradeoff == Budget.zcdp(1).tradeoff()
    assert done.tables[0].counts[0, 0] == 0
    with pytest.raises(Refused, match="a budget of its own"):
        asked.requests[0].space(done.scope)


def test_what_a_product_states_is_computed_again():
    from attrs import evolve

    done = run(plan(), people())
    assert disagreements(done, done.to_json()) == ()
    product = done.results[0]
    half = {view: square / 4 for view, square in product.residuals.sigma2.items()}
    wrong = evolve(product, residuals=evolve(product.residuals, sigma2=half))
    said = disagreements(evolve(done, published=lambda: (wrong,)), done.to_json())
    assert "'product' states less noise on a residual than its budget needs" in said
