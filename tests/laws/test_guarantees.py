"""Laws of guarantees: the partial order of the paper, plain language, JSON, and carrying an
invariant.
"""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.errors import InputError
from semidp.promise.guarantee import Guarantee
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import approximate, gaussian, laplace, zcdp
from semidp.promise.tradeoff.composition import compose
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.promise.tradeoff.polygons import piecewise

SCHEMA = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
TABLE = Table(SCHEMA, [[1, 2, 3], [4, 5, 6]])
OTHER = Table(SCHEMA, [[2, 2, 3], [4, 5, 5]])
SPACES = [
    Dataspace.from_table(TABLE, []),
    Dataspace.from_table(TABLE, [Margin("sex")]),
    Dataspace.from_table(TABLE, [Margin("sex"), Margin("region")]),
    Dataspace.from_table(TABLE, [Margin("sex", "region")]),
    Dataspace.from_table(OTHER, [Margin("sex")]),
    Dataspace.from_description("state totals"),
    Dataspace.from_description("county totals"),
]
CURVES: list[Tradeoff] = [
    gaussian(1),
    gaussian(2),
    zcdp("1/2"),
    approximate(1),
    approximate(1, "1e-6"),
    approximate(1).group(2),
    laplace(1),
    piecewise([0, "1/2", 1], [0, "1/4", 1]),
]

guarantees = st.builds(
    Guarantee, st.sampled_from(SPACES), st.integers(0, 4).map(Ball), st.sampled_from(CURVES)
)


@given(guarantees, guarantees, guarantees)
@settings(max_examples=150, deadline=None)
def test_the_order_is_a_partial_order(one: Guarantee, two: Guarantee, three: Guarantee) -> None:
    assert one <= one
    assert not one < one
    if one <= two and two <= three:
        assert one <= three
    if one <= two and two <= one:
        assert one.compare(two) is Order.EQUAL
        assert one.tradeoff.compare(two.tradeoff) is Order.EQUAL
    if one < two:
        assert one <= two
        assert not two <= one
    assert (one >= two) == (two <= one)
    assert (one > two) == (two < one)
    assert one.compare(two) is two.compare(one).reverse()


@given(guarantees, guarantees)
@settings(max_examples=100, deadline=None)
def test_the_order_needs_both_the_pairs_and_the_curve(weak: Guarantee, strong: Guarantee) -> None:
    pairs = weak.dataspace.is_within(strong.dataspace) and weak.adjacency.a <= strong.adjacency.a
    curve = strong.tradeoff.compare(weak.tradeoff) in (Order.STRONGER, Order.EQUAL)
    assert (weak <= strong) == (pairs and curve)


def test_group_privacy_is_stronger_than_semi_dp_with_the_same_curve() -> None:
    """The paper's example: equal curves, but Semi-DP protects fewer pairs."""
    curve = gaussian(1).group(2)
    group = Guarantee(SPACES[0], Ball(2), curve)
    semi = Guarantee(SPACES[1], Ball(2), curve)
    assert semi < group
    assert not group <= semi
    assert group.compare(semi) is Order.STRONGER
    assert semi.tradeoff.compare(group.tradeoff) is Order.EQUAL


def test_a_smaller_number_is_not_a_stronger_guarantee_elsewhere() -> None:
    one = Guarantee(SPACES[1], Ball(2), zcdp(1))
    two = Guarantee(SPACES[4], Ball(2), zcdp(100))
    assert one.compare(two) is Order.NOT_COMPARABLE


def test_no_two_datasets_differ_in_more_than_n_records() -> None:
    everyone, more = (Guarantee(SPACES[0], Ball(a), gaussian(1)) for a in (TABLE.n, TABLE.n + 5))
    assert everyone.compare(more) is Order.EQUAL


@given(guarantees)
@settings(deadline=None)
def test_json_round_trip(guarantee: Guarantee) -> None:
    assert Guarantee.from_json(json.loads(json.dumps(guarantee.to_json()))) == guarantee


def test_a_composed_curve_survives_json() -> None:
    guarantee = Guarantee(SPACES[1], Ball(2), compose(laplace(1), gaussian(1)).group(2))
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


def test_a_small_t_stays_inside_the_file(tmp_path: Path) -> None:
    guarantee = Guarantee(SPACES[2], Ball(3), gaussian(1))
    guarantee.save(tmp_path / "guarantee.json")
    assert [file.name for file in tmp_path.iterdir()] == ["guarantee.json"]
    assert Guarantee.load(tmp_path / "guarantee.json") == guarantee


def test_a_large_t_goes_beside_and_is_checked(tmp_path: Path) -> None:
    schema = Schema([Feature("block", [str(i) for i in range(5000)])])
    space = Dataspace.from_table(Table(schema, [7] * 5000), [Margin("block")])
    guarantee = Guarantee(space, Ball(2), zcdp(1))
    path = tmp_path / "guarantee.json"
    guarantee.save(path)
    assert path.stat().st_size < 2000
    assert Guarantee.load(path) == guarantee
    (beside,) = (file for file in tmp_path.iterdir() if file != path)
    beside.write_bytes(beside.read_bytes().replace(b"7", b"8", 1))
    with pytest.raises(InputError, match="was changed"):
        Guarantee.load(path)
    beside.unlink()
    with pytest.raises(InputError, match="keep both files"):
        Guarantee.load(path)


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "guarantee.json"
    for content in ("not json", "[]", "{}", '{"dataspace": 3}'):
        path.write_text(content)
        with pytest.raises(InputError, match="does not hold a guarantee"):
            Guarantee.load(path)


def test_the_explanation_says_what_is_and_is_not_protected() -> None:
    text = str(Guarantee(SPACES[2], Ball(3), gaussian(1)).explain())
    assert len(text.split("\n\n")) == 4
    for phrase in (
        "sex, region",
        "at most 3 records",
        "side information",
        "leave a single dataset",
        "at most 26 of 100",
    ):
        assert phrase in text
    assert "What is not protected: the exact statistics" in text


def test_an_ordinary_guarantee_is_explained_without_warnings_about_side_information() -> None:
    text = str(Guarantee(SPACES[0], Ball(1), gaussian(1)).explain())
    assert "does not weaken" in text
    assert "side information matters" not in text


def test_a_table_that_is_fixed_is_never_called_perfectly_private() -> None:
    text = str(Guarantee(SPACES[3], Ball(2), gaussian(0)).explain())
    assert "Everything here is published exactly" in text
    assert "perfect" not in text
    assert "nothing" in str(Guarantee(SPACES[3], Ball(0), gaussian(Fraction(0))).explain())
