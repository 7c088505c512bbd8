"""From a confidential table to a published result: what is drawn, what is claimed, what is
refused.
"""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from semidp.errors import BudgetExceeded, DataError, InputError, Refused, SchemaError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.noise.canonical import canonical_noise
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget, approximate, gaussian, zcdp
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import PiecewiseLinear
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult, planned_test
from semidp.publish.statistics.odds_ratio.umpu import Alternative, TwoByTwo, UmpuTest
from semidp.publish.tested_table import odds_ratio_test

SCHEMA = Schema([Feature("gender", ["f", "m"]), Feature("admitted", ["yes", "no"])])


def table(*counts: int) -> Table:
    return Table(SCHEMA, np.reshape(counts, (2, 2)))


PRIVACY = {
    "pure": Budget.pure(1),
    "approximate": Budget.approximate("0.5", "1e-6"),
    "gdp": Budget.gdp(1),
    "zcdp": Budget.zcdp("0.1"),
    "curve": approximate("0.5").group(2),
    "zcdp curve": zcdp("0.2"),
    "composed": gaussian("0.5").compose(approximate("0.5")),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("privacy", PRIVACY.values(), ids=PRIVACY.keys())
def test_a_result_is_rebuilt_from_its_json(privacy: Budget | Tradeoff) -> None:
    result = odds_ratio_test(table(30, 10, 20, 40), privacy, randomness=SeededRandomness(1))
    again = OddsRatioResult.from_json(json.loads(json.dumps(result.to_json())))
    assert again == result
    assert again.p_value == result.p_value
    assert again.confidence_interval() == result.confidence_interval()
    assert not result.private


def test_a_published_u_is_all_that_is_needed() -> None:
    result = odds_ratio_test(table(30, 10, 20, 40), Budget.pure(1))
    test = UmpuTest(TwoByTwo(40, 50, 100), canonical_noise(Budget.pure(1)), 2.0**-result.grid_bits)
    assert result.alternative is Alternative.TWO_SIDED
    assert result.p_value == float(test.p_value(result.u, Alternative.TWO_SIDED))
    assert result.private


def test_u_is_x11_plus_a_draw_that_does_not_know_x11() -> None:
    one = odds_ratio_test(table(30, 10, 20, 40), Budget.gdp(1), randomness=SeededRandomness(4))
    other = odds_ratio_test(table(25, 15, 25, 35), Budget.gdp(1), randomness=SeededRandomness(4))
    assert Fraction(one.u) - Fraction(other.u) == 5
    assert one.grid_bits == other.grid_bits == 32


@pytest.mark.parametrize(
    ("n", "epsilon", "bits"), [(10**6, "1", 31), (10**12, "1", 11), (100, "1e-9", 14)]
)
def test_the_grid_leaves_room_for_large_counts_and_large_noise(
    n: int, epsilon: str, bits: int
) -> None:
    result = odds_ratio_test(table(n // 4, n // 4, n // 4, n // 4), Budget.pure(epsilon))
    assert result.grid_bits == bits
    assert (Fraction(result.u) * 2**bits).denominator == 1


def test_first_declared_levels_make_x11() -> None:
    strong = table(900, 100, 100, 900)
    result = odds_ratio_test(strong, Budget.pure(1), alternative=Alternative.GREATER)
    assert result.x11 == ("f", "yes")
    assert result.reject(0.001)
    assert not odds_ratio_test(strong, Budget.pure(1), alternative=Alternative.LESS).reject(0.5)
    assert odds_ratio_test(strong, Budget.pure(1), alternative=Alternative.TWO_SIDED).reject(0.001)
    assert (
        30
        < result.confidence_interval(0.95).low
        < 81
        < result.confidence_interval(0.95).high
        == math.inf
    )


def test_the_claim_is_what_the_noise_meets() -> None:
    counts = table(30, 10, 20, 40)
    assert odds_ratio_test(counts, Budget.zcdp("0.5")).guarantee.tradeoff == gaussian(1)
    assert odds_ratio_test(counts, approximate(1).group(2)).guarantee.tradeoff == approximate(
        1
    ).group(2)
    assert isinstance(odds_ratio_test(counts, zcdp(1)).guarantee.tradeoff, PiecewiseLinear)
    result = odds_ratio_test(counts, Budget.pure(1), alternative=Alternative.GREATER)
    assert result.guarantee.dataspace == Dataspace.from_table(
        counts, [Margin("gender"), Margin("admitted")]
    )
    assert result.guarantee.adjacency == Ball(3)
    assert result.most_powerful
    assert not odds_ratio_test(
        counts, Budget.pure(1), alternative=Alternative.TWO_SIDED
    ).most_powerful


def three_way() -> Table:
    """Ten records, margins (3, 7) for each of three features: a(t) = 4."""
    records = [(0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), *[(1, 1, 1)] * 4]
    counts = np.zeros((2, 2, 2), dtype=np.int64)
    for record in records:
        counts[record] += 1
    return Table(Schema([*SCHEMA.features, Feature("region", ["n", "s"])]), counts)


def test_further_invariants_stretch_the_noise() -> None:
    whole = three_way()
    space = Dataspace.from_table(whole, [Margin("gender"), Margin("admitted"), Margin("region")])
    small = whole.margin(["gender", "admitted"])
    result = odds_ratio_test(small, Budget.pure(1), dataspace=space)
    assert result.guarantee.adjacency == Ball(4)
    assert result.test.noise.sensitivity == 2
    assert not result.most_powerful
    f = approximate(1)
    phi = UmpuTest(result.margins, result.test.noise).rejection(range(4), 0.1)
    for step in (1, 2):  # x11 may move by floor(a/2) = 2
        assert np.all(phi[step:] <= 1 - f(1 - phi[:-step]) + 1e-12)
        assert np.all(phi[:-step] <= 1 - f(1 - phi[step:]) + 1e-12)
    assert OddsRatioResult.from_json(result.to_json()) == result


def test_noise_is_not_stretched_further_than_the_margins_allow() -> None:
    result = odds_ratio_test(table(0, 1, 5, 4), Budget.pure(1), adjacency=Ball(6))
    assert result.test.noise.sensitivity == 1


class Forbidden:
    """Random words that must not be asked for."""

    secure = True

    def words(self, count: int) -> np.ndarray:
        raise AssertionError("noise was drawn")


def test_a_ledger_is_charged_before_noise_is_drawn(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "ledger.json", Budget.pure("1.5"))
    counts = table(30, 10, 20, 40)
    odds_ratio_test(counts, Budget.pure(1), ledger=book)
    with pytest.raises(BudgetExceeded, match="odds ratio of gender and admitted"):
        odds_ratio_test(counts, Budget.pure(1), ledger=book, randomness=Forbidden())
    with pytest.raises(AssertionError, match="noise was drawn"):
        odds_ratio_test(counts, Budget.pure("0.5"), ledger=book, randomness=Forbidden())
    assert len(book.account().charges) == 2


@pytest.mark.parametrize("counts", [(0, 0, 3, 4), (3, 0, 4, 0), (0, 0, 0, 0), (0, 0, 0, 7)])
def test_tables_that_the_margins_determine_are_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(Refused, match="only one 2×2 table"):
        odds_ratio_test(table(*counts), Budget.pure(1))


def test_what_is_not_a_two_by_two_table_is_refused_with_a_hint() -> None:
    wide = Table(Schema([SCHEMA.features[0], Feature("region", "nsw")]), [[1, 2, 3], [4, 5, 6]])
    with pytest.raises(SchemaError, match=r"two levels of 'region', not 3.*two bins"):
        odds_ratio_test(wide, Budget.pure(1))
    with pytest.raises(SchemaError, match="two features besides strata, not 3"):
        odds_ratio_test(three_way(), Budget.pure(1))


def test_public_values_must_fit_the_table() -> None:
    counts = table(30, 10, 20, 40)
    with pytest.raises(InputError, match="admitted is not published"):
        odds_ratio_test(
            counts, Budget.pure(1), dataspace=Dataspace.from_table(counts, [Margin("gender")])
        )
    with pytest.raises(Refused, match="published exactly"):
        odds_ratio_test(
            counts,
            Budget.pure(1),
            dataspace=Dataspace.from_table(counts, [Margin("gender", "admitted")]),
        )
    other = Dataspace.from_table(table(31, 10, 19, 40), [Margin("gender"), Margin("admitted")])
    with pytest.raises(DataError, match="gender are not those of the table"):
        odds_ratio_test(counts, Budget.pure(1), dataspace=other)
    with pytest.raises(Refused, match="at least 2"):
        odds_ratio_test(counts, Budget.pure(1), adjacency=Ball(1))


def test_a_planned_test_is_refused_where_the_test_itself_would_be() -> None:
    """Three levels were a ValueError of numpy, and an exact table got a test with noise."""
    wide = Table(Schema([SCHEMA.features[0], Feature("region", "nsw")]), [[1, 2, 3], [4, 5, 6]])
    public = Dataspace.from_table(wide, [Margin("gender"), Margin("region")])
    with pytest.raises(SchemaError, match=r"two levels of 'region', not 3"):
        planned_test(public, "gender", "region", Budget.pure(1))
    counts = table(30, 10, 20, 40)
    exact = Dataspace.from_table(counts, [Margin("gender", "admitted")])
    with pytest.raises(Refused, match="gender and admitted is itself published exactly"):
        planned_test(exact, "gender", "admitted", Budget.pure(1))
    never = StructuralZero.from_pattern({"gender": "f", "admitted": "no"})
    schema = Schema(SCHEMA.features, [never])
    impossible = Dataspace.from_table(
        Table(schema, [[30, 0], [20, 40]]), [Margin("gender"), Margin("admitted")]
    )
    with pytest.raises(Refused, match="impossible cell"):
        planned_test(impossible, "gender", "admitted", Budget.pure(1))
    # The same margins of an ordinary table are tested.
    possible = Dataspace.from_table(counts, [Margin("gender"), Margin("admitted")])
    assert planned_test(possible, "gender", "admitted", Budget.pure(1)).margins.n == 100


def test_no_message_holds_a_count() -> None:
    secret = table(31337, 10, 20, 27183)
    for bad in (
        {"adjacency": Ball(1)},
        {"dataspace": Dataspace.from_table(secret, [Margin("gender", "admitted")])},
    ):
        with pytest.raises(Refused) as caught:
            odds_ratio_test(secret, Budget.pure(1), **bad)  # type: ignore[arg-type]
        assert "31337" not in str(caught.value)
        assert "27183" not in str(caught.value)


def test_u_must_lie_on_its_grid() -> None:
    document = odds_ratio_test(table(30, 10, 20, 40), Budget.pure(1)).to_json()
    for bad in ({"u": 2.0**-40}, {"u": math.nan}):
        with pytest.raises(InputError, match="multiple of"):
            OddsRatioResult.from_json({**document, **bad})
    with pytest.raises(InputError, match="not the JSON"):
        OddsRatioResult.from_json({"u": 3.0})
