"""What a report claims is never stronger than what is proved: printed numbers are rounded towards
less privacy.
"""

import math
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semidp import (
    Ball,
    Budget,
    Dataspace,
    Exchange,
    Feature,
    Guarantee,
    InputError,
    Margin,
    Outcome,
    Plan,
    Schema,
    Table,
    front,
    run,
    sensitivity_space,
)
from semidp.present.report.sentences import strength, summary
from semidp.promise.exact import exact, format_rounded_up
from semidp.promise.tradeoff.budget import approximate, gaussian, zcdp
from semidp.promise.tradeoff.composition import compose
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish import (
    GroupRequest,
    QuantileRequest,
    RegressionRequest,
    TableRequest,
    TablesRequest,
)
from semidp.publish.half_widths import cell_errors
from semidp.publish.results.texts import name_tradeoff
from semidp.publish.selection import available, residual_plan

pytestmark = pytest.mark.pictures

NUMBERS = st.fractions(min_value="1/100000", max_value=50)
DELTAS = st.integers(2, 12).map(lambda digits: Fraction(1, 10**digits))
CURVES = st.one_of(
    NUMBERS.map(gaussian),
    NUMBERS.map(zcdp),
    st.fractions(min_value="1/1000", max_value=9).map(approximate),
    st.builds(lambda a, b: compose(gaussian(a), zcdp(b)), NUMBERS, NUMBERS),
)


@given(st.one_of(NUMBERS, st.floats(min_value=1e-300, max_value=1e300)), st.integers(1, 12))
def test_rounding_up_goes_up_and_not_far(x: Fraction | float, digits: int) -> None:
    printed = Fraction(format_rounded_up(x, digits))
    assert Fraction(x) <= printed <= Fraction(x) * (1 + Fraction(100, 10**digits))


@given(CURVES, DELTAS)
def test_strength_claims_no_more_than_the_curve(curve: Tradeoff, delta: Fraction) -> None:
    said = " ".join(
        strength(Guarantee(Dataspace.from_description("states"), Ball(2), curve), delta)
    )
    (percent,) = re.findall(r"at most (\d+) of 100", said)
    assert int(percent) / 100 >= 1 - float(curve(0.95)) - 1e-12
    (epsilon, at), *_ = re.findall(r"\(([^,()]+), ([^()]+)\)-DP", said)
    assert exact(at) == delta
    assert float(curve.delta(exact(epsilon))) <= float(delta) * (1 + 1e-9)


@given(CURVES)
def test_names_claim_no_more_than_the_curve(curve: Tradeoff) -> None:
    name = name_tradeoff(curve)
    if name is None:
        return
    number = exact(re.findall(r"[\d.e+-]*\d", name)[0])
    if name.endswith("(Gaussian DP)"):
        assert number**2 >= curve.implied_mu_squared()
    elif name.endswith("zCDP"):
        assert number >= curve.implied_rho()
    else:
        assert number >= curve.implied_epsilon()


def test_each_number_of_the_guarantee_is_said_once_and_rounded_one_way() -> None:
    people = {"sex": ["f", "m"] * 20, "region": ["n", "s", "n", "w"] * 10}
    for budget in (Budget.gdp(1), Budget.zcdp("1/2"), Budget.pure(1)):
        release = run(Plan([TableRequest(["sex", "region"], budget)], ["sex", "region"]), people)
        page = re.sub(
            r"<svg.*?</svg>|<style.*?</style>|<[^>]+>", " ", release.report_html(), flags=re.DOTALL
        )
        said = re.findall(r"at most (\S+) of 100", page)
        assert len(said) == 1
        assert said == re.findall(r"at most (\S+) of 100", str(release.guarantee.explain()))
        assert said == re.findall(r"at most (\S+) of 100", summary(release, "report.html"))


def test_the_scale_of_the_noise_is_rounded_one_way() -> None:
    plan = Plan([TableRequest(["sex", "region"], Budget.gdp("1/3"))], ["sex", "region"])
    release = run(plan, {"sex": [*"ffmm"] * 9, "region": [*"nsns"] * 9})
    said = re.findall(r"scale ([\d.,]*\d)", summary(release) + release.report_html())
    assert said == [f"{release.results[0].noise.scale:.4g}"] * 3


def test_the_errors_of_cells_add_up_to_the_expected_distance_whatever_the_mechanism() -> None:
    schema = Schema([Feature("region", "nsw"), Feature("ill", "ny")])
    public = Dataspace.from_table(Table(schema, [[30, 20], [10, 40], [50, 60]]), [Margin("region")])
    names = set()
    for adjacency in (Ball(2), Exchange.from_dataspace(public)):
        for budget in (Budget.gdp(1), Budget.zcdp("1/2"), Budget.pure(1)):
            space = sensitivity_space(public, adjacency)
            found = available(space, budget)
            residuals = residual_plan(space, budget, found[0])
            for mechanism in (*found, *([residuals] if residuals else [])):
                error = cell_errors(mechanism)["standard_error"]
                assert math.isclose(
                    error * math.sqrt(schema.size), mechanism.expected_l2, rel_tol=1e-6
                )
                names.add(mechanism.name)
    assert "residuals" in names


def test_every_result_says_what_it_is() -> None:
    """The page, the terminal and the list of files ask every result the same, and each has an
    answer of its own.
    """
    people = {
        "sex": [*"ffmmf"] * 9,
        "age": [*"yoyoo"] * 9,
        "region": [*"nnsns"] * 9,
        "score": [1, 2, 3, 4, 5] * 9,
    }
    outcome = Outcome("score", 0, 10, 10)
    requests = [
        TableRequest(["sex", "region"], Budget.gdp(1)),
        TablesRequest(
            [TableRequest(["sex", "age"]), TableRequest(["age", "region"])], Budget.gdp(1)
        ),
        GroupRequest("mean", outcome, [["sex"]], Budget.gdp(1)),
        RegressionRequest(outcome, ["sex"], Budget.gdp(1)),
        QuantileRequest(outcome, [["sex"]], budget=Budget.gdp(1)),
    ]
    plan = Plan(requests, invariants=["sex"], levels_from_data=True)
    release = run(plan, people)
    said, page = summary(release), release.report_html()
    assert len({result.list_key for result in release.results}) == len(release.results) == 5
    for result in release.results:
        assert result.title()
        for line in (*result.noisy_lines(), *(text for _, text in result.summary_lines())):
            assert line in said
        assert {word for word, _ in result.summary_lines()} <= {
            "error",
            "mechanism",
            "estimate",
            "columns",
            "warning",
            "",
        }
        headings = [section.heading for section in result.sections()]
        assert headings
        assert all(f"<h2>{heading}</h2>" in page for heading in headings)
        assert f"<dt>Mechanism of {result.details().what}</dt>" in page
        assert [name for name, _ in result.file_words()] == list(result.files())
        assert result.columns_by_name()
        for name, content in result.columns_by_name().items():
            assert release[name].to_dict() == content.to_dict()


def test_a_table_is_found_by_its_name_before_its_features() -> None:
    tables = [
        TableRequest(["sex", "region"], Budget.gdp(1), name="age"),
        TableRequest(["age"], Budget.gdp(1), name="region"),
    ]
    people = {"sex": [*"fm"] * 9, "age": [*"yo"] * 9, "region": [*"ns"] * 9}
    release = run(Plan(tables, levels_from_data=True), people)
    assert release["age"].schema.names == ("sex", "region")
    assert release["region"].schema.names == ("age",)
    assert release.table(["region", "sex"]) is release["sex-region"] is release["age"]


def test_a_table_is_found_by_its_features_in_any_order_and_by_the_finest_of_a_nested_one() -> None:
    homes = {"state": [*"aabb"] * 9, "county": ["a1", "a2", "b1", "b1"] * 9, "sex": [*"fm"] * 18}
    release = front.release(
        homes,
        front.table("county", "sex"),
        exact=["county"],
        nest=("state", "county"),
        levels={"sex": ["f", "m"]},
        mu=1,
    )
    (only,) = release.tables
    names = ["county-sex", "sex-county", "state-county-sex", ["sex", "county"], only.name]
    assert all(release.table(name) is only for name in names)
    for wrong in ("state-sex", "county", "county-sex-sex", "sex-county-"):
        with pytest.raises(InputError, match="nothing called"):
            release.table(wrong)
