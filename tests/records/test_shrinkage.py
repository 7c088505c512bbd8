"""Noise of pairs is shrunk before records are made: margins stay, and tables come closer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semidp as sd
from semidp.inference.records.record_assembly import PublishedNumbers, swapped_records
from semidp.inference.records.shrinkage import (
    combine_depths,
    estimate_targets,
    project_counts,
    project_depths,
    shrink_pair,
    shrink_singular_values,
)
from semidp.promise.noise.randomness import SeededRandomness


def noisy_pair(seed: int, size: int = 12, sigma: float = 20.0):
    """A table of two dependent features, and the same with noise."""
    source = np.random.default_rng(seed)
    rows, columns = source.dirichlet(np.ones(size), 2) * 60
    truth = 5 * np.outer(rows, columns) * (1 + 0.8 * np.sin(np.add.outer(rows, 2 * columns)))
    return truth, truth + source.normal(0, sigma, truth.shape), sigma


def shrink(noisy, sigma):
    """Shrink a table that nothing else is known of: its margins are its own."""
    total = noisy.sum()
    rows, columns = (project_counts(noisy.sum(axis=axis), total) for axis in (1, 0))
    return shrink_pair(noisy, sigma, rows, columns)


def test_shrunk_tables_keep_their_margins_and_are_closer():
    closer = 0
    for seed in range(40):
        truth, noisy, sigma = noisy_pair(seed)
        shrunk = shrink(noisy, sigma)
        for axis in (0, 1):
            margin = project_counts(noisy.sum(axis=axis), noisy.sum())
            assert shrunk.sum(axis=axis) == pytest.approx(margin, abs=1e-6)
        closer += np.abs(shrunk - truth).sum() < np.abs(noisy - truth).sum()
    assert closer == 40


def test_a_wrong_scale_of_the_noise_is_worse():
    """The twin: tables shrunk as if they had no noise, or far more of it, are farther off."""
    right, none, far = 0.0, 0.0, 0.0
    for seed in range(40):
        truth, noisy, sigma = noisy_pair(seed)
        right += np.abs(shrink(noisy, sigma) - truth).sum()
        none += np.abs(shrink(noisy, sigma / 100) - truth).sum()
        far += np.abs(shrink(noisy, 30 * sigma) - truth).sum()
    assert right < 0.9 * none
    assert right < 0.9 * far


def test_pure_noise_has_no_direction_left():
    source = np.random.default_rng(3)
    for size in (3, 10, 40):
        noise = source.normal(0, 1, (size, 2 * size))
        assert np.abs(shrink_singular_values(noise, 1.5)).max() == 0
        assert np.abs(shrink_singular_values(noise, 0.2)).max() > 0


def test_records_of_all_pairs_come_closer_to_the_truth():
    source = np.random.default_rng(4)
    hidden = source.integers(0, 3, 3000)
    people = {
        name: (hidden * 4 + source.integers(0, 5, 3000)) % 12 for name in ("a", "b", "c", "d")
    }
    data = {name: [f"{value:02d}" for value in column] for name, column in people.items()}
    names = [*data]
    pairs = [(one, two) for place, one in enumerate(names) for two in names[place + 1 :]]
    plan = sd.Plan(
        [sd.publish.TableRequest(pair, name="-".join(pair)) for pair in pairs],
        features=[sd.Feature(name, [f"{level:02d}" for level in range(12)]) for name in names],
    ).with_budget(sd.Budget.zcdp("0.02"))
    release = sd.run(plan, data, SeededRandomness(1))
    numbers = PublishedNumbers.from_release(release)
    errors = []
    for targets in (numbers.targets, estimate_targets(numbers, numbers.targets)):
        records = swapped_records(numbers, SeededRandomness(2), targets=targets, seconds=5)
        made = {name: np.array(column, dtype=int) for name, column in records.to_dict().items()}
        total = 0.0
        for one, two in pairs:
            counts = [
                np.bincount(some[one] * 12 + some[two], minlength=144) for some in (people, made)
            ]
            total += float(np.abs(counts[0] - counts[1]).sum())
        errors.append(total)
    assert errors[1] < 0.92 * errors[0]


@settings(max_examples=50)
@given(st.lists(st.floats(-20, 20), min_size=4, max_size=12), st.integers(1, 40))
def test_what_is_cut_off_at_zero_stays_in_its_bin(estimate, total):
    """Bins have the counts that they would have by themselves, and levels add up to them."""
    levels = np.array(estimate)
    groups = np.minimum(np.arange(len(levels)) // 2, 2)
    for depths in ([groups], [groups, np.arange(len(levels))]):
        counts = project_depths(levels, depths, total)
        assert counts.min() >= 0
        bins = project_counts(np.bincount(groups, levels), total)
        assert np.allclose(np.bincount(groups, counts), bins)


def test_rare_levels_do_not_take_records_from_other_bins():
    """Bins are known well, and each of a thousand levels of one record is hidden by noise."""
    truth = np.array([*[20.0] * 50, *[1.0] * 1000])
    groups = np.array([0] * 50 + [1] * 1000)
    source = np.random.default_rng(1)
    bins = np.bincount(groups, truth) + source.normal(0, 5, 2)
    noisy = combine_depths(truth + source.normal(0, 5, len(truth)), 5, groups, bins, 5)
    apart = np.bincount(groups, project_counts(noisy, 2000))
    together = np.bincount(groups, project_depths(noisy, [groups], 2000))
    assert np.abs(together - 1000).max() < 15
    assert np.abs(apart - 1000).max() > 100
