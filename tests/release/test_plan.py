"""A plan survives its TOML and JSON forms, and refuses what it cannot mean."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semidp import Budget, Feature, InputError, Margin, Plan, StructuralZero
from semidp.publish import TableRequest
from semidp.publish.plan import AdjacencyChoice
from semidp.publish.results.published_table import FitKind

NAMES = st.text(min_size=1, max_size=8).filter(
    lambda text: text.isprintable() and text.strip() == text
)
NUMBERS = st.fractions(min_value="1/1000", max_value=100)
BUDGETS = st.one_of(
    NUMBERS.map(Budget.zcdp),
    NUMBERS.map(Budget.gdp),
    NUMBERS.map(Budget.pure),
    st.builds(Budget.approximate, NUMBERS, st.fractions(min_value="1/1000000", max_value="1/2")),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    names = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    features = [
        Feature(name, draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))) for name in names
    ]
    features.append(Feature("age in years", bins=[0, 18, 65, "inf"], null_level="unknown"))
    return Plan(
        [
            TableRequest(
                names[:2], draw(st.none() | BUDGETS), "auto", draw(st.sampled_from(FitKind))
            )
        ],
        invariants=[Margin(name) for name in names[1:]],
        features=features,
        structural_zeros=[
            StructuralZero.from_pattern(
                {names[0]: features[0].levels[0], names[1]: [features[1].levels[0]]}
            )
        ],
        adjacency=draw(st.sampled_from(AdjacencyChoice) | st.integers(1, 9)),
        count=draw(st.none() | NAMES),
        where=draw(st.none() | NAMES),
        levels_from_data=draw(st.booleans()),
        report_delta=draw(st.fractions(min_value="1/1000000", max_value="1/2")),
    )


@given(plans())
def test_round_trips(plan: Plan) -> None:
    assert Plan.from_toml(plan.to_toml()) == plan
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nonsense", "TOML"),
        ("colour = 1", "colour"),
        ("[[table]]\nname = 'x'", "features"),
        ("[[table]]\nfeatures = ['a']\nepsilon = '1'\nrho = '1'", "one of"),
        ("[[table]]\nfeatures = ['a']\nrho = '1'\ndelta = '1e-9'", "report_delta"),
        ("[[table]]\nfeatures = ['a', 'a']", "twice"),
        ("[[table]]\nfeatures = ['a']\nfit = 'best'", "fit"),
        ("[[table]]\nfeatures = ['a']\nname = '../x'", "name"),
        ("[[table]]\nfeatures = ['a']\n[[table]]\nfeatures = ['a']", "two requests would write"),
        (
            "[[table]]\nfeatures = ['a']\nrho = 1\n[[table]]\nfeatures = ['b']\nrho = 1",
            "two requests would write",
        ),
        ("adjacency = 0", "adjacency"),
        ("report_delta = '2'", "delta"),
        ("[[structural_zero]]\nage = 'child'", "features"),
        ("[[feature]]\nname = 'age'\nlevels = 'abc'", "list"),
    ],
)
def test_refusals(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        Plan.from_toml(text)


def test_the_budgets_of_a_plan_add_up() -> None:
    def budget(*parts: Budget | None) -> Budget | None:
        return Plan(
            [TableRequest(["a"], part, name=f"t{i}") for i, part in enumerate(parts)]
        ).budget

    assert budget(Budget.pure("1/3")) == Budget.pure("1/3")
    assert budget(Budget.pure(1), Budget.pure(2)) == Budget.pure(3)
    assert budget(Budget.zcdp("1/2"), Budget.zcdp("1/4")) == Budget.zcdp("3/4")
    assert budget(Budget.gdp(3), Budget.gdp(4)) == Budget.gdp(5)
    assert budget(
        Budget.approximate(1, "1e-6"), Budget.approximate(2, "1e-6")
    ) == Budget.approximate(3, "2e-6")
    assert budget(Budget.approximate(1, "2/3"), Budget.approximate(1, "2/3")) is None
    assert budget(Budget.zcdp(1), Budget.gdp(1)) is None
    assert budget(Budget.zcdp(1), None) is None
    assert budget() is None
