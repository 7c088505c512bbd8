"""The study of ten tables from one budget: its numbers, and which gain is at the same promise."""

import pytest

from semidp.applications import grouped_studies as products
from semidp.publish.plotting import png


def test_the_numbers_and_which_gain_is_the_same_promise() -> None:
    table = products.compute_products()
    ball = table.where(promise="ball", joint=False)["total_variance"]
    exchange = table.where(promise="exchange", joint=False)["total_variance"]
    assert [round(value) for value in ball[:2]] == [93_580, 75_382]
    assert ball[2] <= 62_400
    assert exchange[2] <= 11_800
    assert (ball[1] / ball[2], ball[0] / ball[2]) == (
        pytest.approx(1.2, abs=0.05),
        pytest.approx(1.5, abs=0.05),
    )
    assert ball[2] / exchange[2] == pytest.approx(5.3, abs=0.05)
    (ball_jointly,) = table.where(promise="ball", joint=True)["total_variance"]
    (exchange_jointly,) = table.where(promise="exchange", joint=True)["total_variance"]
    assert ball_jointly <= 57_600
    assert exchange_jointly <= 10_440
    figure = products.plot_products(table)
    said = figure.axes[0].get_title(loc="left")
    assert "Same promise (ball): residuals need 1.3 to 1.6 times less" in said
    assert "Another promise (exchange): 5.5 times less" in said
    assert png(figure).startswith(b"\x89PNG")
