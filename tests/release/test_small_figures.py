"""Figures that are too small for their layout are drawn without it, and say nothing of the machine."""

import warnings

import pytest

from semidp.publish.plotting import png, svg

pytestmark = pytest.mark.pictures


def test_a_figure_without_room_is_drawn_without_a_warning() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.4, 0.4), layout="constrained")
    axes = figure.subplots()
    axes.set_ylabel("a label that leaves the axes no room")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert svg(figure).startswith("<svg")
        assert png(figure).startswith(b"\x89PNG")


def test_the_figure_would_warn_by_itself() -> None:
    import io

    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.4, 0.4), layout="constrained")
    figure.subplots().set_ylabel("a label that leaves the axes no room")
    with pytest.warns(UserWarning, match="constrained_layout not applied"):
        figure.savefig(io.BytesIO(), format="png")
