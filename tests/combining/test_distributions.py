"""Distributions of one outcome in several releases, combined: dense least squares, the law of the
noise, the folder.
"""

import json
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import semidp
from semidp import Budget, Plan, Release, combine
from semidp.cli import run
from semidp.errors import InputError, Refused
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.recheck import recheck
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.protocol.statistic import PublishedStatistic

STEPS = 9
WARDS, SEXES = "abc", "fm"
COUNTY = semidp.Nest(["county", "ward"])


@cache
def people(records: int = 300) -> dict[str, list]:
    rng = np.random.default_rng(6)
    ward = rng.choice([*WARDS], records)
    return {
        "county": ["north" if one == "a" else "south" for one in ward],
        "ward": ward.tolist(),
        "sex": rng.choice([*SEXES], records).tolist(),
        "days": np.clip(rng.normal(4, 2, records).round(), 0, STEPS).astype(int).tolist(),
    }


def released(
    by: list[list[str]], budget: Budget, seed: int, exact: list | None = None, nested: bool = False
) -> Release:
    outcome = semidp.Outcome("days", 0, STEPS, STEPS)
    request = DistributionRequest(outcome, by, budget=budget)
    plan = Plan(
        [request],
        by if exact is None else exact,
        nests=[COUNTY] if nested else [],
        levels_from_data=True,
    )
    return semidp.run(plan, people(), SeededRandomness(seed))


def pooled(*releases: Release) -> PublishedStatistic:
    (result,) = combine(*releases).results
    assert isinstance(result, PublishedStatistic)
    return result


def dense(releases: list[Release], names: list[str], sizes: list[int]) -> tuple[dict, dict]:
    """For every set of groups the estimated differences and their variances, by least squares over
    all cells of the groups and one gap after another.
    """
    rows, values, weights = [], [], []
    designs = {}
    for release in releases:
        (result,) = release.results
        space = result.analysis.space
        law_variance = result.analysis.mechanism.sampler.variance
        differences = np.asarray(result.noisy).reshape(-1, STEPS)
        start = 0
        for block, counts in zip(space.blocks, space.counts, strict=True):
            design = design_of(block.names, names, sizes)
            designs[block.names] = design
            rows.append(design)
            values.append(differences[start : start + counts.size])
            weights.append(np.full(counts.size, 1 / law_variance))
            start += counts.size
    scale = np.sqrt(np.concatenate(weights))[:, None]
    inverse = np.linalg.pinv(scale * np.concatenate(rows), rcond=1e-10)
    cells = inverse @ (scale * np.concatenate(values))
    estimates = {block: design @ cells for block, design in designs.items()}
    variances = {
        block: np.square(design @ inverse).sum(axis=1) for block, design in designs.items()
    }
    return estimates, variances


def design_of(block: tuple[str, ...], names: list[str], sizes: list[int]) -> np.ndarray:
    """Which cells of ward × sex each group of a set adds up."""
    design = np.ones((1, 1))
    for name, size in zip(names, sizes, strict=True):
        if name in block:
            part = np.eye(size)
        elif name == "ward" and "county" in block:
            part = np.array([[1.0, 0, 0], [0, 1, 1]])
        else:
            part = np.ones((1, size))
        design = np.kron(design, part)
    return design


SETS = {
    "the same groups": lambda: [
        released([["ward"]], Budget.zcdp("0.05"), 1),
        released([["ward"]], Budget.zcdp("0.2"), 2),
    ],
    "other groups": lambda: [
        released([["ward"]], Budget.zcdp("0.05"), 3),
        released([["sex"]], Budget.zcdp("0.2"), 4),
    ],
    "finer groups": lambda: [
        released([["ward"], ["sex"]], Budget.zcdp("0.1"), 5),
        released([["ward", "sex"]], Budget.zcdp("0.1"), 6),
        released([["sex"]], Budget.pure(1), 7),
    ],
    "nested groups": lambda: [
        released([["county"]], Budget.zcdp("0.1"), 8, [["ward"]], nested=True),
        released([["ward"]], Budget.zcdp("0.1"), 9, nested=True),
    ],
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SETS)
def test_differences_are_those_of_dense_least_squares(name: str) -> None:
    releases = SETS[name]()
    result = pooled(*releases)
    pool = result.analysis.pool
    estimates, variances = dense(releases, ["ward", "sex"], [3, 2])
    compared, start = 0, 0
    for number, (block, counts) in enumerate(
        zip(pool.space.blocks, pool.space.counts, strict=True)
    ):
        part = pool.differences[start : start + counts.size]
        np.testing.assert_allclose(part, estimates[block.names], rtol=1e-9, atol=1e-8)
        terms, which = pool.terms[number]
        for group, expected in enumerate(variances[block.names]):
            stated = sum(term.variance for term in terms[which[group]])
            assert stated == pytest.approx(expected, rel=1e-8)
            compared += 1
        start += counts.size
    assert compared >= 3
    # F follows from the differences, and both ends are exact.
    shares = result.sheets[0]["share"].reshape(-1, STEPS)
    assert (np.diff(shares, axis=1) >= -1e-12).all()


def test_an_average_of_two_equal_measurements_has_the_law_of_their_mean() -> None:
    """Coarse noise: half-widths from atoms of (X + Y)/2, listed one by one, and not z·sd."""
    releases = [released([["ward"]], Budget.zcdp(8), seed) for seed in (1, 2)]
    result = pooled(*releases)
    law = releases[0].results[0].analysis.mechanism.sampler
    tree = result.analysis.space.tree
    widths = result.analysis.block_half_widths(None)[0]
    # The root's gap: F = (n + D)/2, so that its error is (X + Y)/4.
    root = int(tree.levels[0][0])
    chances: dict[Fraction, float] = {}
    reach = range(-30, 31)
    atoms = {k: float(law.pmf(k)) for k in reach}
    for one in reach:
        for other in reach:
            value = Fraction(one + other, 4)
            chances[value] = chances.get(value, 0.0) + atoms[one] * atoms[other]
    sizes = sorted({abs(value) for value in chances})
    held = np.cumsum([sum(chances[v] for v in {size, -size}) for size in sizes])
    exact = float(sizes[int(np.searchsorted(held, 0.95))])
    assert widths[root] == pytest.approx(exact, abs=1e-9)


@pytest.mark.long
def test_intervals_and_bands_hold_as_often_as_they_say() -> None:
    """150 pairs of releases by two sets of groups: quantiles, shares and the whole curve."""
    data = people()
    truth = {}
    for place, ward in enumerate(WARDS):
        chosen = np.array(data["days"])[np.array(data["ward"]) == ward]
        truth[place] = np.array([(chosen <= value).mean() for value in range(STEPS)])
    inside, narrow, whole = [], [], []
    for seed in range(150):
        result = pooled(
            released([["ward"], ["sex"]], Budget.zcdp("0.02"), 2 * seed),
            released([["ward"]], Budget.zcdp("0.02"), 2 * seed + 1),
        )
        pooled_counts = result.analysis
        counts = pooled_counts.unbiased_counts(result.request.by[0])
        widths = pooled_counts.block_half_widths(result.request.by[0])
        sizes = pooled_counts.sizes(result.request.by[0])[:, None]
        errors = np.abs(counts - sizes * np.stack([truth[place] for place in range(3)]))
        inside.append((errors <= widths + 1e-9).mean())
        narrow.append((errors <= 0.85 * widths).mean())
        curves = {
            name: result.sheets[0][name].reshape(3, -1) for name in ("band_lower", "band_upper")
        }
        for place in range(3):
            low, high = curves["band_lower"][place], curves["band_upper"][place]
            held = (low <= truth[place] + 1e-9) & (truth[place] <= high + 1e-9)
            whole.append(held.all())
    # 1,350 counts of each set, nine of a group correlated: the error of the rate is about 0.008.
    assert 0.93 < np.mean(inside) < 0.985
    assert np.mean(narrow) < 0.93
    assert 0.93 < np.mean(whole) <= 1


@pytest.mark.long
def test_the_folder_is_a_release_like_any_other(tmp_path, capsys) -> None:
    releases = [
        released([["ward"]], Budget.zcdp("0.05"), 1),
        released([["ward"], ["sex"]], Budget.zcdp("0.2"), 2),
    ]
    for number, release in enumerate(releases):
        release.save(tmp_path / str(number))
    both = tmp_path / "both"
    assert run(["combine", str(tmp_path / "0"), str(tmp_path / "1"), "--out", str(both)]) == 0
    again = Release.load(both)
    document = json.loads((both / "release.json").read_text())
    assert recheck(again, document, both).disagreements == ()
    (result,) = again.results
    (median,) = combine(*releases).results[0].analysis.quantiles(["1/2"], result.request.by[0])
    assert np.array_equal(result.sheets[1]["q0.5"], median.values)
    assert "from 2 releases" in capsys.readouterr().out
    assert "2 releases cut the range of values" in (both / "report.html").read_text()
    file = both / "distribution-days-by-ward-quantiles.csv"
    text = file.read_text().splitlines()
    text[1] = ",".join([*text[1].split(",")[:-1], "9.5"])
    file.write_text("\n".join(text) + "\n")
    assert run(["show", str(both)]) != 0


def test_variances_are_at_most_the_better_ones() -> None:
    releases = SETS["finer groups"]()
    result = pooled(*releases)
    compared = 0
    for block in result.request.by:
        terms, _ = result.analysis.list_terms(block)
        stated = sum(term.variance for term in terms[0])
        for release in releases:
            (published,) = release.results
            if block in published.request.by:
                assert stated <= published.analysis.mechanism.sampler.variance * (1 + 1e-9)
                compared += 1
    assert compared == 4


def test_what_is_not_of_the_same_values_stays_as_it_was_published() -> None:
    outcome = semidp.Outcome("days", 0, STEPS, 3)
    request = DistributionRequest(outcome, [["ward"]], budget=Budget.zcdp(1))
    coarse = semidp.run(Plan([request], ["ward"]), people(), SeededRandomness(1))
    fine = released([["ward"]], Budget.zcdp("0.05"), 1)
    with pytest.raises(Refused, match="no distribution on the same grid and lines"):
        combine(coarse, fine)
    with pytest.raises(InputError, match="the same measurement"):
        combine(fine, fine)


def test_tables_and_distributions_stand_side_by_side() -> None:
    outcome = semidp.Outcome("days", 0, STEPS, STEPS)
    releases = []
    for seed in (1, 2):
        plan = Plan(
            [
                semidp.publish.TableRequest(["ward", "sex"], Budget.zcdp("0.1")),
                DistributionRequest(outcome, [["ward"]], budget=Budget.zcdp("0.1")),
            ],
            ["ward"],
            levels_from_data=True,
        )
        releases.append(semidp.run(plan, people(), SeededRandomness(seed)))
    both = combine(*releases)
    assert [type(result).__name__ for result in both.results] == [
        "CombinedTables",
        "PublishedStatistic",
    ]
    assert both.guarantee.tradeoff.implied_rho() == pytest.approx(0.4)
    document = both.to_json()
    assert len(document["combined"]) == len(document["combined_distributions"]) == 1
