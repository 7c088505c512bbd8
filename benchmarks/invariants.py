"""Exact group sizes beside noisy sums: what OpenDP states, what holds, and what semidp needs for
the same guarantee.

Scores between 0 and 10, summed by ward; the sizes of the wards are exact. All numbers are losses
and noise scales, which no machine changes: they must be met exactly.
"""

from importlib.metadata import version
from typing import Any

from semidp import Budget, Dataspace, Feature, Margin, Schema, Table
from semidp.assess import opendp as bridge
from semidp.promise.mechanisms.additive import LaplaceMechanism
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.outcome_spaces import outcome_adjacency, sum_space

SCALE = 10


def opendp_sums(scale: float | None) -> Any:
    """Return sums by ward as OpenDP measures them: with a scale that is given, or that it finds for
    epsilon = 1.
    """
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib", "honest-but-curious")
    sizes = dp.polars.Margin(by=["ward"], invariant="lengths", max_length=1000)
    if scale is None:
        context = dp.Context.compositor(
            data=pl.LazyFrame({"ward": ["a", "b"], "score": [1, 2]}),
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(epsilon=1.0),
            split_evenly_over=1,
            margins=[sizes],
        )
        return context.query().group_by("ward").agg(pl.col("score").fill_null(0).dp.sum((0, 10)))
    columns = [
        dp.series_domain(name, dp.atom_domain(T=kind))
        for name, kind in (("ward", "String"), ("score", "i64"))
    ]
    plan = pl.LazyFrame(schema={"ward": pl.String, "score": pl.Int64}).group_by("ward")
    plan = plan.agg(pl.col("score").fill_null(0).dp.sum((0, 10), scale=scale))
    domain = dp.with_margin(dp.lazyframe_domain(columns), sizes)
    return dp.m.make_private_lazyframe(
        domain, dp.symmetric_distance(), dp.max_divergence(), plan, 1.0
    )


def semidp_scale(epsilon: str) -> float:
    """Return the scale of semidp's Laplace noise on the same sums, in units of the score, for any
    two people.
    """
    wards = Table(Schema([Feature("ward", "ab")]), [30, 20])
    public = Dataspace.from_table(wards, [Margin("ward")])
    space = sum_space(
        public, outcome_adjacency(public), Outcome("score", 0, 10, steps=10), [Margin("ward")]
    )
    return LaplaceMechanism.calibrate(space, Budget.pure(epsilon)).scale


def run() -> list[dict[str, Any]]:
    """Compare, and return numbers against what they must be."""
    name = f"OpenDP {version('opendp')}, sums in [0, 10] beside exact sizes"
    known, chosen = bridge.guarantee(opendp_sums(float(SCALE))), opendp_sums(None)
    rows = [
        (
            f"{name}, Laplace scale {SCALE}: epsilon announced",
            float(known.announced.implied_epsilon() or 0),
            0.0,
        ),
        (
            f"{name}, Laplace scale {SCALE}: epsilon found",
            float(known.guarantee.tradeoff.implied_epsilon() or 0),
            2.0,
        ),
        (f"{name}, epsilon 1: scale that it chooses", float(chosen.summarize()["scale"][0]), 0.0),
        (
            f"{name}, epsilon 1: published exactly (1 = yes)",
            float(bridge.guarantee(chosen).published_exactly),
            1.0,
        ),
        (
            f"semidp's Laplace scale for epsilon 2, any two people, over {SCALE}",
            semidp_scale("2") / SCALE,
            1.0,
        ),
    ]
    return [
        {"name": what, "ratio": value, "target": f"= {goal:g}", "ok": value == goal}
        for what, value, goal in rows
    ]


if __name__ == "__main__":
    for row in run():
        print(row)
