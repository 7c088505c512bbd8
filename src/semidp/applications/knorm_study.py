"""The paper's comparison of K-norm mechanisms with naive l1, l2 and l∞ mechanisms, and on to 10 x
10 tables.

As published: the hull of the four-cell moves, radius Gamma(s), and Gamma(d) for l∞: not private
under A_3, and the radius not at all. Correct: the hull of S_3 with its three-cycles, Gamma(s+1) and
Gamma(d+1).
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from semidp import Ball, Budget, Table, sensitivity_space
from semidp.applications.naive import NaiveL1, NaiveL2, NaiveLinf, published_noise
from semidp.applications.study import (
    MODELS,
    PAPER,
    Losses,
    Settings,
    Tidy,
    both_margins,
    simulated_table,
)
from semidp.promise import (
    KNormMechanism,
    Mechanism,
    SeededRandomness,
    calibrate_mechanism,
    knorm_noise,
)
from semidp.publish import style

Draw = Callable[[int], NDArray[Any]]

PUBLISHED_SIZES = (2, 3)
SIZES = range(2, 11)
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
LABELS = {
    "knorm": "K-norm",
    "naive-l1": "naive l1",
    "naive-l2": "naive l2",
    "naive-linf": "naive l∞",
    "laplace": "projected Laplace",
    "l2": "l2 in the subspace",
}


def compute(settings: Settings = PAPER, sizes: range = SIZES) -> Tidy:
    """Return the mean loss ``‖M(X) - φ(X)‖_2`` of each mechanism; nothing is truncated, as in the
    paper.

    Without truncation the loss is the length of the noise and does not depend on the table. Beyond
    the paper's sizes only ε = 1 is drawn, since every loss is proportional to 1/ε.

    >>> compute(Settings(replicates=2), sizes=range(2, 3)).columns
    ('model', 'k', 'epsilon', 'mechanism', 'variant', 'truncated', 'mean_l2', 'se', 'replicates')
    """

    def run(model: str, k: int, epsilon: Fraction) -> Iterator[Losses]:
        numbers = [MODELS.index(model), k, EPSILONS.index(epsilon)]
        source = np.random.default_rng([settings.seed, *numbers])
        table = simulated_table(model, k, settings.seed)
        for name, variant, draw in noises(table, epsilon, source):
            drawn = draw(settings.replicates).reshape(settings.replicates, -1)
            labels = {"mechanism": name, "variant": variant, "truncated": False}
            yield labels, np.linalg.norm(drawn, axis=1)

    cases = []
    for model in MODELS:
        for k in sizes:
            epsilons = EPSILONS if k in PUBLISHED_SIZES else EPSILONS[-1:]
            cases += [{"model": model, "k": k, "epsilon": epsilon} for epsilon in epsilons]
    return settings.run_replicates("K-norm mechanisms", "mean_l2", cases, run)


def noises(table: Table, epsilon: Fraction, source: Generator) -> Iterator[tuple[str, str, Draw]]:
    """Yield the name, the variant and the noise of each mechanism of the figure: a function that
    draws as many runs as it is asked for.

    >>> table = simulated_table("I", 3, seed=0)
    >>> for name, variant, draw in noises(table, Fraction(1), np.random.default_rng(0)):
    ...     print(name, variant, draw(5).shape)
    knorm correct (5, 3, 3)
    laplace correct (5, 3, 3)
    l2 correct (5, 3, 3)
    naive-l1 correct (5, 3, 3)
    naive-l2 correct (5, 3, 3)
    naive-linf correct (5, 3, 3)
    knorm as-published (5, 3, 3)
    naive-l1 as-published (5, 3, 3)
    naive-l2 as-published (5, 3, 3)
    naive-linf as-published (5, 3, 3)
    """
    dataspace, budget = both_margins(table), Budget.pure(epsilon)
    three = sensitivity_space(dataspace, Ball(3))
    randomness = SeededRandomness(int(source.integers(2**62)))

    def make_draw(mechanism: Mechanism) -> Draw:
        return lambda size: mechanism.noises(size, randomness)

    def make_projected_draw(mechanism: Mechanism) -> Draw:
        def draw(size: int) -> NDArray[Any]:
            noises = mechanism.noises(size, randomness)
            return np.stack([three.project(noise) for noise in noises])

        return draw

    ball = KNormMechanism.calibrate(three, budget).placed_ball.ball
    l1 = NaiveL1.calibrate(three, budget)
    l2 = NaiveL2.calibrate(three, budget)
    linf = NaiveLinf.calibrate(three, budget)
    yield "knorm", "correct", lambda size: knorm_noise(ball, epsilon, size, source)
    yield "laplace", "correct", make_projected_draw(calibrate_mechanism("laplace", three, budget))
    yield "l2", "correct", make_draw(calibrate_mechanism("l2", three, budget))
    yield "naive-l1", "correct", make_draw(l1)
    yield "naive-l2", "correct", make_draw(l2)
    yield "naive-linf", "correct", make_draw(linf)
    # The paper's figure has no larger tables.
    if table.schema.shape[0] not in PUBLISHED_SIZES:
        return
    # The paper's list of moves is that of A_2: it lacks the three-cycles of A_3.
    two = sensitivity_space(dataspace, Ball(2))
    four_cells = KNormMechanism.calibrate(two, budget).placed_ball.ball
    yield "knorm", "as-published", lambda size: published_noise(four_cells, epsilon, size, source)
    # The published l1 and l2 noise is right; only the radius of l∞ was wrong.
    yield "naive-l1", "as-published", make_draw(l1)
    yield "naive-l2", "as-published", make_draw(l2)
    yield "naive-linf", "as-published", lambda size: _published_linf(linf, size, source)


def plot(table: Tidy) -> style.Figure:
    """Draw the paper's sizes at three ε, published and correct; and all sizes at ε = 1, correct."""
    sizes = [k for k in PUBLISHED_SIZES if k in table["k"]]
    with style.drawing(3.6 * (len(sizes) + 1), 7.4, columns=len(sizes) + 1, rows=2) as (
        figure,
        grid,
    ):
        for axes_row, model in zip(grid, MODELS, strict=True):
            for axes, k in zip(axes_row, sizes, strict=False):
                _by_epsilon(axes, table.where(model=model, k=k))
                axes.set_title(f"Model {model}, {k} × {k}")
            correct = table.where(model=model, variant="correct", epsilon=EPSILONS[-1])
            _by_size(axes_row[-1], correct)
            axes_row[-1].set_title(f"Model {model}, correct, ε = 1")
            axes_row[0].set_ylabel("mean L2 loss (records)")
        handles, labels = grid[0][-1].get_legend_handles_labels()
        published = zip(*grid[0][0].get_legend_handles_labels(), strict=True)
        hollow = [handle for handle, label in published if "published" in label][:1]
        # one handle stands for all published curves
        handles = handles + hollow
        labels = labels + ["dashed, hollow: as published"] * len(hollow)
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.suptitle(
            f"Pure ε mechanisms under both margins: mean of {table['replicates'][0]} runs ± 2"
            " standard errors"
        )
    return figure


def _published_linf(mechanism: NaiveLinf, size: int, source: Generator) -> NDArray[np.float64]:
    """The l∞ noise behind the published figure, radius Gamma(d): its density is unbounded at 0 for
    d > 1.
    """
    radii = mechanism.scale * source.standard_gamma(mechanism.cells, (size, 1, 1))
    directions = source.uniform(-1, 1, (size, *mechanism.space.shape))
    return np.asarray(radii * directions)


def _by_epsilon(axes: Any, part: Tidy) -> None:
    for variant in ("as-published", "correct"):
        is_published = variant == "as-published"
        for name in ("knorm", "naive-l1", "naive-l2", "naive-linf"):
            losses = part.where(variant=variant, mechanism=name)
            _curve(axes, losses, "epsilon", name, is_published)
    axes.set(xscale="log", yscale="log", xlabel="ε")
    ticks = [float(epsilon) for epsilon in EPSILONS]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    style.plain_numbers(axes.yaxis)


def _by_size(axes: Any, part: Tidy) -> None:
    for name in LABELS:
        _curve(axes, part.where(mechanism=name), "k", name, hollow=False)
    axes.set(yscale="log", xlabel="table size k (k × k cells)", xticks=part.distinct("k"))
    style.plain_numbers(axes.yaxis)


def _curve(axes: Any, part: Tidy, x: str, name: str, hollow: bool) -> None:
    number = list(LABELS).index(name)
    label = LABELS[name] + (", as published" if hollow else "")
    look = {
        "markersize": 5,
        "markerfacecolor": "white" if hollow else style.CYCLE[number],
        "linestyle": "--" if hollow else "-",
        "linewidth": 1.4,
    }
    values = [float(value) for value in part[x]]
    style.error_bars(axes, values, part["mean_l2"], part["se"], number, label, **look)
