"""The test of an odds ratio as a request like any other: plans, releases, ledgers."""

from pathlib import Path

import numpy as np
import pytest

from semidp import Budget, InputError, Ledger, Plan, Refused, Release, Table, odds_ratio_test, run
from semidp.errors import SchemaError
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.documents import read_document
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism, CellSpace
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish import TableRequest
from semidp.publish.pipeline import RunOptions
from semidp.publish.recheck import recheck
from semidp.publish.statistics.odds_ratio.kind import OddsRatioRequest

COUNTS = np.array([[[9, 4], [3, 8]], [[5, 5], [2, 12]]])  # sex × vote × ward
SCHEMA = Schema([Feature("sex", "fm"), Feature("vote", "yn"), Feature("ward", "ab")])
BOTH = [["sex", "ward"], ["vote", "ward"]]


def people() -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {name: [] for name in SCHEMA.names}
    for place, count in np.ndenumerate(COUNTS):
        for axis, feature in enumerate(SCHEMA.features):
            columns[feature.name] += [feature.levels[place[axis]]] * int(count)
    return columns


def plan(*requests: object, **changes: object) -> Plan:
    return Plan(requests, **({"invariants": BOTH, "features": SCHEMA.features} | changes))


@pytest.mark.parametrize(
    "budget", [Budget.pure(1), Budget.gdp(1), Budget.zcdp("1/2"), Budget.approximate(1, "1e-6")]
)
@pytest.mark.parametrize("strata", [(), ("ward",)])
def test_a_request_draws_what_the_function_draws(budget, strata):
    margins = [Margin(name, *strata) for name in ("sex", "vote")]
    request = OddsRatioRequest("sex", "vote", budget, strata=strata, alternative="greater")
    release = run(Plan([request], margins, SCHEMA.features), people(), SeededRandomness(3))
    table = Table(SCHEMA, COUNTS) if strata else Table(SCHEMA, COUNTS).margin(["sex", "vote"])
    alone = odds_ratio_test(
        table, budget, strata=strata, alternative="greater", randomness=SeededRandomness(3)
    )
    (published,) = release.results
    assert (published.analysis.u, published.analysis.p_value) == (alone.u, alone.p_value)
    assert release.guarantee.tradeoff == alone.guarantee.tradeoff
    assert release.guarantee.adjacency == alone.guarantee.adjacency


def test_plans_and_releases_are_read_back(tmp_path: Path):
    asked = plan(
        OddsRatioRequest("sex", "vote", Budget.gdp(2), ["ward"], level="0.9"),
        TableRequest(["ward"], Budget.gdp(1)),
    )
    assert Plan.from_toml(asked.to_toml()) == asked
    release = run(asked, people())
    release.save(tmp_path / "release")
    again = Release.load(tmp_path / "release")
    (before,), (after,) = (
        [part for part in one.results if part.list_key == "odds_ratios"] for one in (release, again)
    )
    assert after.analysis == before.analysis
    assert after.analysis.confidence_interval(0.9) == before.analysis.confidence_interval(0.9)
    found = recheck(
        again, read_document(tmp_path / "release" / "release.json"), tmp_path / "release"
    )
    assert found.disagreements == ()


def test_a_changed_p_value_is_noticed(tmp_path: Path):
    release = run(plan(OddsRatioRequest("sex", "vote", Budget.gdp(2), ["ward"])), people())
    release.save(tmp_path / "release")
    document = read_document(tmp_path / "release" / "release.json")
    document["odds_ratios"][0]["p_value"] /= 2
    found = recheck(Release.load(tmp_path / "release"), document, tmp_path / "release")
    assert any("p_value" in sentence for sentence in found.disagreements)


def asked_for() -> OddsRatioRequest:
    return OddsRatioRequest("sex", "vote", Budget.gdp(1))


@pytest.mark.parametrize(
    ("request_", "changes", "refusal", "reason"),
    [
        (lambda: OddsRatioRequest("sex", "sex"), {}, InputError, "different features"),
        (lambda: OddsRatioRequest("sex", "vote", level=2), {}, InputError, "level"),
        (lambda: OddsRatioRequest("sex", "vote", alternative="more"), {}, InputError, "one of"),
        (
            lambda: OddsRatioRequest("sex", "vote", Budget.gdp(1)),
            {"invariants": [["sex", "vote"]]},
            Refused,
            "itself published",
        ),
        (
            lambda: OddsRatioRequest("sex", "vote", Budget.gdp(1)),
            {"invariants": ["sex", "vote"], "adjacency": 1},
            Refused,
            "protects nothing",
        ),
        (
            lambda: OddsRatioRequest("sex", "vote", Budget.gdp(1)),
            {
                "invariants": ["sex", "vote"],
                "features": [Feature("sex", ["f", "m", "x"]), *SCHEMA.features[1:]],
            },
            SchemaError,
            "two levels",
        ),
    ],
)
def test_what_cannot_be_tested_is_refused(request_, changes, refusal, reason):
    with pytest.raises(refusal, match=reason):
        run(plan(request_(), **changes), people())


def test_a_ledger_computes_the_charge_anew_once_more_is_exact(tmp_path: Path):
    """Beside exact wards, four records may change together and x11 by two: f is composed with
    itself.
    """
    table = Table(SCHEMA, COUNTS)
    margins = Dataspace.from_table(table, [Margin("sex"), Margin("vote")])
    more = Dataspace.from_table(table, [Margin("sex"), Margin("vote"), Margin("ward")])
    from semidp.promise.spaces.adjacency import Ball

    mechanism = CanonicalMechanism.calibrate(
        CellSpace(margins, Ball(3), "sex", "vote"), Budget.pure(1)
    )
    assert mechanism.tradeoff.epsilon(0) == pytest.approx(1)
    again = mechanism_from_record(mechanism.record(), more, Ball(4))
    assert again.tradeoff.epsilon(0) == pytest.approx(2)
    assert (
        mechanism_from_record(mechanism.record(), margins, Ball(3)).tradeoff == mechanism.tradeoff
    )
    old_record = mechanism.record()
    # as 0.1 wrote it
    assert old_record["query"] == {"kind": "cell", "features": ["sex", "vote"], "cell": [0, 0]}
    book = Ledger.create(tmp_path / "ledger.json", Budget.pure(9))
    run(
        plan(OddsRatioRequest("sex", "vote", Budget.pure(1)), invariants=["sex", "vote"]),
        people(),
        RunOptions(ledger=book),
    )
    assert len(book.own_charges) == 1


def test_the_claimed_curve_holds_on_the_worst_pair():
    """The exact law of U at two values of x11 that are as far apart as the noise was stretched for,
    by its cdf.
    """
    space = CellSpace(
        Dataspace.from_table(Table(SCHEMA, COUNTS), [Margin("sex"), Margin("vote")]),
        _ball(4),
        "sex",
        "vote",
    )
    mechanism = CanonicalMechanism.calibrate(space, Budget.pure(1))
    assert mechanism.moves == 2
    cuts = np.linspace(-30, 30, 2001)
    law = mechanism.noise_law
    # reject where U is large
    false_alarms, misses = law.cdf(-cuts), law.cdf(cuts - mechanism.moves)
    claimed = mechanism.tradeoff(1 - false_alarms)
    assert len(claimed) == 2001
    assert (misses >= claimed - 1e-9).all()
    # the twin: one more than it was stretched for breaks the claim
    further = law.cdf(cuts - mechanism.moves - 1)
    assert (further < claimed - 1e-6).any()


@pytest.mark.parametrize(
    ("cell", "mu"), [(1, 1), (1, "1/1000000"), (160_000, "1/10000"), (2**29, 1)]
)
def test_no_digit_of_u_is_lost_in_a_float(cell: int, mu: int | str):
    """Rounding would depend on x11. A grid much finer would not do, or is not needed."""
    totals = [Margin("sex"), Margin("vote")]
    public = Dataspace.from_table(Table(Schema(SCHEMA.features[:2]), [[cell] * 2] * 2), totals)
    space = CellSpace(public, Ball(3), "sex", "vote")
    mechanism = CanonicalMechanism.calibrate(space, Budget.gdp(mu))
    assert (4 * cell + 60 * mechanism.scale) * 2**mechanism.bits <= 2**53
    finer = 2 ** (mechanism.bits + 3)
    assert mechanism.bits == 32 or (4 * cell + 66 * mechanism.scale) * finer > 2**53
    assert mechanism.variance == pytest.approx(mechanism.scale**2)


def _ball(a: int):
    from semidp.promise.spaces.adjacency import Ball

    return Ball(a)
