"""Twin runs: two datasets that a promise compares, carried out with the same random words.

Everything public must be equal. The measured numbers have the same noise, so that their difference
is that of the data: it is compared with what the release states, and with the same difference
computed from the records.
"""

import random
from collections import Counter
from typing import Any

import numpy as np

from tests.twins.claims import SLACK
from tests.twins.plans import STATISTICS, Outcome, draw_case
from tests.twins.town_plans import draw_town_case

ROWS = ("flat", "nested", "joint", "zeros", "several records")
TOWNS = ("linked member", "linked unit", "quarters", "top code")
COLUMNS = ("tables", "residuals", "sums", "ranks", "distributions", "regressions", "missing")
RELATIONS = ("ball", "exchange")
BOXES = [
    *((row, column, relation) for row in ROWS for column in COLUMNS for relation in RELATIONS),
    *((row, "residuals", relation) for row in TOWNS for relation in RELATIONS),
]
"""The boxes of docs/listed.md that are not refused."""


class Violation(AssertionError):
    """Two datasets that are compared and can be told apart better than stated."""


class Seen:
    """What twin runs have compared."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str, str]] = Counter()
        self.counts: Counter[str] = Counter()
        self.worst: dict[tuple[str, str, str], float] = {}

    @property
    def total(self) -> int:
        return self.counts["pairs"]

    def report(self) -> str:
        lines = [f"{key}: {count}" for key, count in sorted(self.counts.items())]
        for box in BOXES:
            lines.append(
                f"{' / '.join(box)}: {self.pairs[box]} pairs, {self.worst.get(box, 0):.2f}"
            )
        return "\n".join(lines)


def draw(rng: random.Random, box: tuple[str, str, str]) -> Any:
    """A plan that falls into a box of the grid."""
    row, column, relation = box
    if row in TOWNS:
        return draw_town_case(rng, row, relation)
    named = {"tables": "table", "residuals": "product", "missing": "missing", "mixed": "mixed"}
    statistic = named.get(column, column.removesuffix("s"))
    assert statistic in STATISTICS
    return draw_case(rng, statistic, row, relation)


def run_twins(
    case: Any, rng: random.Random, seen: Seen, near: int, effort: tuple[int, int]
) -> None:
    """Compare the worst pair that a search finds, and some neighbors of its first dataset."""
    seed = rng.randrange(2**32)
    start = case.run(case.start, seed)
    if start.document is None:
        seen.counts["refused plans"] += 1
        compare_public(case, start, case.run(case.walk(rng), seed))
        return
    claims = case.claims(start.document)
    pairs = case.pairs(claims, rng)
    worst = pairs.find_worst(claims.height, *effort)
    if not worst:
        seen.counts["plans without a pair"] += 1
        return
    pair = worst[0]
    first, second = (pair.first, pair.second) if hasattr(pair, "first") else pair
    one = case.run(first, seed, apart=1)
    compare_public(case, start, one)
    found = [second]
    near = 1 if "partition" in case.options else near  # a run by parts takes seconds
    for _ in range(10 * near):
        other = pairs.draw_neighbor(first)
        if other is not None and len(found) <= near:
            found.append(other)
    for other in found:
        two = case.run(other, seed, apart=rng.randrange(2, 10**6))
        compare_public(case, one, two)
        ratio = compare_numbers(case, claims, (first, one), (other, two))
        seen.counts["pairs"] += 1
        for option in ("where", "partition"):
            seen.counts[option] += option in case.options
        for row in case.rows:
            for column in (*case.columns, *["mixed"] * (len(case.columns) > 1)):
                box = (row, column, case.relation)
                seen.pairs[box] += 1
                seen.worst[box] = max(seen.worst.get(box, 0.0), ratio)


def compare_public(case: Any, one: Outcome, two: Outcome) -> None:
    """Everything but the noisy numbers, and how many random words were used, is the same."""
    if one.public != two.public:
        raise Violation(f"what is public differs: {one.public} and {two.public} of {case}")
    has_choices = one.document is not None and "quantiles" in one.document
    if not has_choices and one.asked != two.asked:
        raise Violation(f"the noise of {case} depends on the data")


def compare_numbers(
    case: Any, claims: Any, one: tuple[Any, Outcome], two: tuple[Any, Outcome]
) -> float:
    """The numbers differ as the records do, and no more than is stated; return the largest ratio."""
    for name, expected in claims.changes(one[0], two[0]).items():
        moved = two[1].noisy[name].astype(object) - one[1].noisy[name].astype(object)
        sizes = sorted(abs(float(number)) for number in moved.ravel() if number)
        wanted = sorted(float(number) for number in np.abs(expected) if number > 1e-6)
        if len(sizes) != len(wanted) or not np.allclose(sizes, wanted):
            raise Violation(f"{name} of {case} moved by {sizes}, its records by {wanted}")
    largest = 0.0
    for name, ratio in claims.ratios(one[0], two[0]):
        if ratio > 1 + SLACK:
            raise Violation(
                f"{name} of {case} moves {ratio:.3f} times as far as stated: {one[0]} and {two[0]}"
            )
        largest = max(largest, ratio)
    return largest
