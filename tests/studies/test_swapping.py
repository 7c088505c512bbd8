"""The study of swapping: what the page about it says of its numbers."""

from fractions import Fraction

import pytest

from semidp.applications import census_studies as swapping
from semidp.publish.plotting import png

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def table() -> swapping.Tidy:
    return swapping.compute_swapping()


def test_the_sizes_and_rates_are_all_there(table: swapping.Tidy) -> None:
    assert (min(swapping.RATES), max(swapping.RATES)) == (Fraction(1, 100), Fraction(1, 2))
    assert (min(swapping.STRATA), max(swapping.STRATA)) == (8, 10_000)
    assert len(table) == len(swapping.RATES) * len(swapping.STRATA)
    assert all(row["proved"] == (row["n"] <= 1000) for row in table.records())


def test_the_advantage_falls_where_the_published_epsilon_rises(table: swapping.Tidy) -> None:
    for rate in swapping.RATES:
        part = table.where(rate=rate)
        assert part["advantage"] == sorted(part["advantage"], reverse=True)
        assert part["published_epsilon"] == sorted(part["published_epsilon"])
        exact = [epsilon for epsilon in part["exact_epsilon"] if epsilon is not None]
        assert len(exact) == 3
        assert max(exact) - min(exact) < 0.16
        pairs = zip(exact, part["published_epsilon"], strict=False)
        assert all(epsilon <= published for epsilon, published in pairs)
    tenth = {row["n"]: row for row in table.where(rate=Fraction(1, 10)).records()}
    assert [round(tenth[n]["advantage"], 3) for n in (8, 1000)] == [0.947, 0.105]
    assert [round(tenth[n]["published_epsilon"], 1) for n in (8, 1000)] == [8.8, 18.2]


def test_the_errors_are_close_to_those_of_noise(table: swapping.Tidy) -> None:
    compared = 0
    for row in table.records():
        ratio = row["swapping_error_unbiased"] / row["gaussian_error"]
        if row["n"] >= 200:
            assert 1 < ratio < 1.25
            compared += 1
        if row["n"] >= 2000:
            assert ratio < 1.05
        if ratio < 1:
            assert row["advantage"] > 0.9
    assert compared == 36


def test_the_picture_is_drawn(table: swapping.Tidy) -> None:
    assert png(swapping.plot_swapping(table)).startswith(b"\x89PNG")
