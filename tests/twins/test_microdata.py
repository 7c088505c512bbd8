"""Twin runs of microdata: two phases, of which the second depends on what the first one published.

Noise alone cannot be the same in both runs: the first phase would publish other counts, and the
second would have other bins. So the transcript is the same instead: the second phase of every run
follows from the counts that the first run published. Then everything public must be equal, and what
both phases move together may cost no more than the release states.
"""

import json
import random

import numpy as np
import pytest

import semidp
from semidp import Budget, Feature, Plan
from semidp.publish import phases
from semidp.publish.level_bins import Microdata
from semidp.publish.phases import PairsToCome
from tests.twins.claims import SLACK, Claims
from tests.twins.people import Pairs, World
from tests.twins.plans import Outcome, Tape, draw_records
from tests.twins.twin_runs import Violation, compare_public

AGES = [str(age) for age in range(9)]
LEVELS = {"sex": ["f", "m"], "job": ["farm", "mine", "sea", "shop"], "age": AGES}
FLAT = World(
    tuple((name,) for name in LEVELS),
    tuple(tuple((label,) for label in labels) for labels in LEVELS.values()),
)


class TwoPhases:
    """Runs of one plan with a transcript: what the first phase of the first run published."""

    def __init__(self, exact, relation, budget, monkeypatch):
        self.exact, self.is_forced, self.transcript, self.published = exact, True, None, []
        asked = Microdata([*LEVELS], budget, ordered=["age"])
        features = [Feature(name, labels) for name, labels in LEVELS.items()]
        adjacency = "exchange" if relation == "exchange" else "worst-case"
        self.plan = Plan([], exact, features, adjacency=adjacency, microdata=asked)
        prepare = PairsToCome.prepare_pairs

        def prepare_after_transcript(later, first, mechanisms, noisy):
            self.published.append([each.noisy for each in noisy])
            self.transcript = self.transcript or noisy
            return prepare(later, first, mechanisms, self.transcript if self.is_forced else noisy)

        monkeypatch.setattr(PairsToCome, "prepare_pairs", prepare_after_transcript)

    def run(self, records):
        """Release the microdata of some records with the same random words."""
        rows = {name: [leaf[0] for leaf in column] for name, column in self.list_columns(records)}
        tape = Tape(1)
        release = semidp.run(self.plan, rows, tape)
        noisy = {result.name: np.asarray(result.noisy) for result in release.results}
        return Outcome(json.loads(json.dumps(release.to_json())), noisy, tuple(tape.asked))

    @staticmethod
    def list_columns(records):
        leaves = [[leaf[-1:] for leaf in column] for column in zip(*records, strict=True)]
        return zip(LEVELS, leaves, strict=True)

    def nest(self, document):
        """Records with the bins of a release as coarser depths: the world, and a leaf for each
        label.
        """
        names, leaves, blocks = [], [], []
        for number, entry in enumerate(document["dataspace"]["schema"]["feature"]):
            tree = entry.get("tree")
            pairs = [(bin_, label) for bin_ in tree or () for label in tree[bin_]]
            names.append(tuple(entry.get("nest", [entry["name"]])))
            leaves.append(tuple(pairs or ((label,) for label in entry["levels"])))
            if entry["name"] in self.exact:
                blocks.append(((number, len(names[-1])),))
        world = World(tuple(names), tuple(leaves), tuple(blocks))
        return world, [{leaf[-1]: leaf for leaf in of_feature} for of_feature in leaves]


def compare_twins(runs, rng, near, effort):
    """Compare the worst pair that a search finds, and some neighbors; return the largest ratio."""
    start = draw_records(rng, FLAT, 14)
    document = runs.run(start).document
    world, places = runs.nest(document)
    nested = [tuple(at[leaf[0]] for at, leaf in zip(places, r, strict=True)) for r in start]
    claims = Claims(world, document, nested)
    relation = "exchange" if runs.plan.adjacency == "exchange" else "ball"
    pairs = Pairs(world, nested, relation, claims.a, rng)
    worst = pairs.find_worst(claims.height, *effort)[0]
    found = [pairs.draw_neighbor(worst.first) for _ in range(near)]
    one, ratios, counted = runs.run(worst.first), [], 0
    first_counts = runs.published[-1]
    for other in [worst.second, *(each for each in found if each is not None)]:
        two = runs.run(other)
        compare_public(runs.plan, one, two)
        expected = claims.changes(worst.first, other)
        moves = dict(
            zip(expected, zip(first_counts, runs.published[-1], strict=True), strict=False)
        )
        if "product" in expected:
            moves["product"] = (one.noisy["product"], two.noisy["product"])
        for name, (before, after) in moves.items():
            moved = after.astype(object) - before.astype(object)
            sizes = sorted(abs(float(number)) for number in moved.ravel() if number)
            wanted = sorted(float(number) for number in np.abs(expected[name]) if number > 1e-6)
            if len(sizes) != len(wanted) or not np.allclose(sizes, wanted):
                raise Violation(f"{name} moved by {sizes}, its records by {wanted}")
        ratios += [ratio for _, ratio in claims.ratios(worst.first, other)]
        counted += 1
    if max(ratios) > 1 + SLACK:
        raise Violation(f"two phases move {max(ratios):.3f} times as far as stated")
    return max(ratios), counted


PLANS = [
    (["sex"], "ball", Budget.zcdp(1)),
    (["sex", "job"], "exchange", Budget.gdp(1)),
    ([], "ball", Budget.approximate(1, "1e-6")),
    (["job"], "exchange", Budget.zcdp("1/2")),
]


def test_two_phases_together_cost_no_more_than_stated(monkeypatch):
    exact, relation, budget = PLANS[0]
    ratio, counted = compare_twins(
        TwoPhases(exact, relation, budget, monkeypatch), random.Random(1), 2, (2, 80)
    )
    assert counted >= 2
    assert ratio > 0.6


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_many_two_phases_cost_no_more_than_stated(seed, monkeypatch):
    total = 0
    for exact, relation, budget in PLANS:
        runs = TwoPhases(exact, relation, budget, monkeypatch)
        ratio, counted = compare_twins(runs, random.Random(seed), 8, (3, 150))
        assert ratio > 0.5
        total += counted
        monkeypatch.undo()
    assert total >= 20


def test_bins_that_follow_from_other_counts_are_noticed(monkeypatch):
    """Without the transcript the second phase sees counts that were not published."""
    runs = TwoPhases(["sex"], "ball", Budget.zcdp(1000), monkeypatch)
    runs.is_forced = False
    with pytest.raises(Violation, match="public"):
        compare_twins(runs, random.Random(1), 20, (2, 80))


def test_too_little_noise_in_the_second_phase_is_noticed(monkeypatch):
    """Of two phases that each spend the whole budget, the worst pair shows that they do."""
    runs = TwoPhases(["sex"], "ball", Budget.zcdp(1), monkeypatch)
    monkeypatch.setattr(phases, "pairs_budget", lambda asked, *_: asked.phases_budget)
    monkeypatch.setattr(
        runs, "run", lambda records, right=runs.run: state(right(records), "rho", "1")
    )
    with pytest.raises(Violation, match="times as far"):
        compare_twins(runs, random.Random(1), 0, (4, 200))


def state(outcome, key, value):
    """The same release with another guarantee."""
    outcome.document["guarantee"][key] = value
    return outcome
