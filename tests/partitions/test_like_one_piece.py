"""By parts as in one piece: of the same measurement the same estimates, errors and types, whatever
is asked for.

A release by parts is drawn with a seed, and what all its parts have measured is put together.
Published in one piece, that measurement has the same estimates and standard errors, and whole
numbers that are as close to them.
"""

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from semidp import Budget, Feature, Outcome, Plan, Release, SemidpError
from semidp.promise.documents import read_document
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.progress import silent
from semidp.promise.schema.schema import StructuralZero
from semidp.publish import GroupRequest, TableRequest, TablesRequest
from semidp.publish.recheck import disagreements
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.statistics.protocol.requests import Published
from semidp.publish.statistics.tables.published import PublishedTables
from tests.partitions.conftest import run_partitioned

KINDS = ("shared", "alone", "pure", "zeros", "largest", "target", "groups", "named")


@frozen
class Asked:
    """A random plan with records for it, cut at states."""

    kind: str
    plan: Plan
    data: dict[str, list[Any]]


def random_plan(seed: int) -> Asked:
    """Return a plan of tables by county, with everything that one piece can be asked for, by
    turns.
    """
    g = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    paths = [
        (f"s{s}", f"s{s}c{c}") for s in range(g.choice([2, 3])) for c in range(g.choice([1, 2, 3]))
    ]
    places = Feature.from_paths(["state", "county"], paths)
    others = [
        Feature(name, [f"{name}{level}" for level in range(g.choice([2, 3]))]) for name in "ab"
    ]
    zeros = []
    if kind == "zeros":
        zeros = [StructuralZero.from_pattern({"a": "a0", "b": "b0"})]
    exact = g.choice([[], ["state"], ["a"], ["state", "a"], ["county"], [["state", "b"]]])
    budget = Budget.pure(g.choice([1, 2])) if kind == "pure" else Budget.gdp(g.choice([1, 2]))
    full = ["county", "a", "b"]
    pairs = [["county", "a"], ["county", "b"], ["state", "b"], ["a", "b"]]
    requests: list[Any]
    if kind in ("pure", "alone", "named"):
        options = {"mechanism": "gaussian"} if kind == "named" else {}
        requests = [TableRequest(g.choice([full, *pairs[:2]]), budget, **options)]
    elif kind == "target":
        requests = [
            TableRequest(names, target_error=g.choice([3, 6])) for names in [pairs[0], pairs[3]]
        ]
    else:
        tables = [TableRequest(names) for names in (full, *g.sample(pairs, g.choice([1, 2])))]
        objective = "largest" if kind == "largest" else "total"
        requests = [TablesRequest(tables, budget, objective)]
    if kind == "groups":
        exact = ["county"]
        requests.append(
            GroupRequest("mean", Outcome("score", 0, 10, 10), [["county"]], Budget.gdp(2))
        )
    plan = Plan(requests, exact, [places, *others], structural_zeros=zeros)
    return Asked(kind, plan, _records(g, places, others, bool(zeros)))


def _records(
    g: random.Random, places: Feature, others: list[Feature], zeros: bool
) -> dict[str, list[Any]]:
    data: dict[str, list[Any]] = {name: [] for name in ("state", "county", "a", "b", "score")}
    for _ in range(g.choice([80, 300])):
        state, county = places.path(g.randrange(len(places.levels)))
        one, two = (g.choice(feature.levels) for feature in others)
        if zeros and (one, two) == ("a0", "b0"):
            two = "b1"
        for name, value in zip(data, (state, county, one, two, g.randrange(11)), strict=True):
            data[name].append(value)
    return data


def measured_in_parts(release: Release, result: PublishedTables) -> np.ndarray:
    """Return what all parts have measured, as one piece would have measured it."""
    return np.asarray(result.whole_noisy(release.partition))


@frozen
class Compared:
    """How far whole numbers lie from the estimates, by parts and in one piece, and how long both
    took.
    """

    kind: str
    apart: float
    together: float
    seconds_apart: float
    seconds_together: float
    tables: int


def compare(seed: int, folder: Path) -> Compared | None:
    """Release by parts, publish the same measurement in one piece, and compare; None where the plan
    is refused.
    """
    asked = random_plan(seed)
    started = time.process_time()
    try:
        run_partitioned(asked.plan, asked.data, folder, "state", randomness=SeededRandomness(seed))
    except SemidpError:
        return None
    apart_seconds = time.process_time() - started
    release = Release.load(folder)
    losses = np.zeros(2)
    seconds, checked = 0.0, 0
    for request, result in zip(release.plan.requests, release.results, strict=True):
        if not isinstance(result, PublishedTables):
            checked += _same_statistic(release, request, result)
            continue
        mechanism = result.residuals or result.recalibrate(request, release.scope)
        vector = measured_in_parts(release, result)
        started = time.process_time()
        whole = request.publish(
            mechanism, mechanism.restore_measurement(vector, False), release.scope, silent
        )
        seconds += time.process_time() - started
        for published, one_piece in zip(result.every_table(), whole.tables, strict=True):
            np.testing.assert_allclose(published.estimate, one_piece.estimate, atol=1e-6)
            np.testing.assert_allclose(
                published.standard_errors, one_piece.standard_errors, atol=1e-6
            )
            assert published.counts.dtype == one_piece.counts.dtype
            assert published.fitted.kind == one_piece.fitted.kind
            assert published.keeps(release.scope.dataspace)
            losses += [
                float(np.square(table.counts - table.estimate).sum())
                for table in (published, one_piece)
            ]
            checked += 1
        if isinstance(mechanism, ResidualMechanism):
            assert mechanism.spent <= mechanism.precision
    assert checked
    assert disagreements(release, read_document(folder / "release.json")) == ()
    return Compared(asked.kind, *np.sqrt(losses), apart_seconds, seconds, checked)


def _same_statistic(release: Release, request: Any, result: Published) -> int:
    """Publish a statistic by group again, in one piece, from its noisy values."""
    mechanism = result.recalibrate(request, release.scope)
    again = request.publish(mechanism, result.measurement(mechanism), release.scope, silent)
    for name, columns in again.files().items():
        for column, numbers in columns.numbers.items():
            np.testing.assert_allclose(result.files()[name].numbers[column], numbers, atol=1e-9)
    return 1


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(len(KINDS)), ids=KINDS.__getitem__)
def test_what_one_piece_can_be_asked_for_parts_can_too(seed: int, tmp_path: Path) -> None:
    found = compare(seed, tmp_path / "release")
    assert found is not None
    assert found.apart <= found.together * 1.05 + 1e-6


@pytest.mark.long
def test_a_measurement_that_is_put_together_wrongly_is_seen(tmp_path: Path) -> None:
    """The twin: two parts whose measurements change places have other estimates."""
    asked = random_plan(0)
    run_partitioned(
        asked.plan, asked.data, tmp_path / "release", "state", randomness=SeededRandomness(0)
    )
    release = Release.load(tmp_path / "release")
    (result,) = release.results
    vector = measured_in_parts(release, result)
    mechanism = result.residuals
    estimates = mechanism.estimates(mechanism.publish(vector))
    wrong = mechanism.estimates(mechanism.publish(vector[::-1].copy()))
    assert np.allclose(estimates[0], release.tables[0].estimate)
    assert not np.allclose(wrong[0], release.tables[0].estimate)


@pytest.mark.long
@pytest.mark.parametrize("place", range(len(KINDS)), ids=KINDS.__getitem__)
def test_two_hundred_random_plans(place: int, tmp_path: Path) -> None:
    """Of every kind 22 plans or 23: all of them together are as close as in one piece."""
    seeds = range(place, 200, len(KINDS))
    compared = [compare(seed, tmp_path / str(seed)) for seed in seeds]
    done = [one for one in compared if one is not None]
    assert all(one.kind == KINDS[place] for one in done)
    apart = np.sqrt(sum(one.apart**2 for one in done))
    together = np.sqrt(sum(one.together**2 for one in done))
    ratios = [one.apart / one.together for one in done if one.together > 1e-9]
    seconds_apart = sum(one.seconds_apart for one in done)
    seconds_together = sum(one.seconds_together for one in done)
    print(
        f"{KINDS[place]}: {len(done)} of {len(seeds)} plans, {sum(one.tables for one in done)}"
        f" results, distance {apart:.2f} by parts, {together:.2f} in one piece, largest ratio"
        f" {max(ratios, default=1.0):.3f}, {seconds_apart:.1f} s by parts, {seconds_together:.1f} s"
        " to publish"
    )
    assert apart <= together * 1.01 + 1e-6
    assert len(done) >= len(seeds) - 1
