"""The law of x11 given the margins: against exact fractions, and against fifty digits where floats
lose theirs.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.errors import InputError
from semidp.publish.statistics.odds_ratio.umpu import TwoByTwo


@settings(deadline=None)
@given(st.integers(0, 30), st.data())
def test_small_laws_are_exact(n: int, data: st.DataObject) -> None:
    row, column = data.draw(st.integers(0, n)), data.draw(st.integers(0, n))
    odds = data.draw(st.sampled_from([Fraction(1), Fraction(1, 5), Fraction(7, 2), Fraction(100)]))
    margins = TwoByTwo(row, column, n)
    weights = [
        math.comb(row, x) * math.comb(n - row, column - x) * odds**x
        for x in range(margins.low, margins.high + 1)
    ]
    law = margins.law(float(odds))
    assert (law.first, law.last) == (margins.low, margins.high)
    np.testing.assert_allclose(
        law.pmf, [float(weight / sum(weights)) for weight in weights], rtol=1e-12
    )


@pytest.mark.parametrize(
    ("row", "column", "log_odds"),
    [(500_000, 500_000, 0.0), (1000, 300_000, 0.0), (500_000, 400_000, 2.0), (3, 3, 0.0)],
)
def test_a_million_records_keep_eleven_digits(row: int, column: int, log_odds: float) -> None:
    n = 1_000_000
    law = TwoByTwo(row, column, n).law_for_log_odds(log_odds)
    top = int(law.pmf.argmax())
    with mpmath.workdps(50):

        def height(x: int) -> mpmath.mpf:
            ways = mpmath.log(mpmath.binomial(row, x)) + mpmath.log(
                mpmath.binomial(n - row, column - x)
            )
            return ways + x * mpmath.mpf(log_odds)

        for i in (0, len(law.pmf) // 7, len(law.pmf) // 3, len(law.pmf) - 1):
            exact = mpmath.exp(height(law.first + i) - height(law.first + top))
            assert abs(mpmath.mpf(law.pmf[i]) / mpmath.mpf(law.pmf[top]) / exact - 1) < 1e-11


def test_the_mirrored_law_is_that_of_the_negative() -> None:
    law = TwoByTwo(7, 5, 10).law(3.0)
    assert (law.mirror().first, law.mirror().last) == (-5, -2)
    assert math.isclose(law.mirror().mean, -law.mean)


def test_illegal_margins_and_odds_ratios_are_refused() -> None:
    with pytest.raises(InputError, match="between 0 and"):
        TwoByTwo(11, 5, 10)
    for odds in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="positive"):
            TwoByTwo(5, 5, 10).law(odds)
