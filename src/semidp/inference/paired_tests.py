"""Tests of every pair of features of a release, with a bound on the share of false
discoveries.

The tests are those of `association`, collected with jointly adjusted p-values.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.association import Association, Scores, assess_association
from semidp.inference.independence import Independence
from semidp.inference.measured import table_features
from semidp.promise.noise.randomness import Randomness
from semidp.publish.plotting import Figure, drawing
from semidp.publish.results.grids import Section
from semidp.publish.results.texts import p_value_text
from semidp.publish.written_values import check_level

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]

_LEAST_DRAWS = 9999
_MOST_DRAWS = 999_999


@frozen
class PairTests:
    """Tests of independence of every pair of features, with p-values adjusted for their number.

    Parameters
    ----------
    tests
        One for each pair that can be tested.
    adjusted
        Their p-values after Benjamini and Yekutieli (2001), which hold under every dependence
        between the tests.
    fdr
        The bound on the expected share of false discoveries.
    untested
        The pairs that cannot be tested, each with the reason.
    """

    tests: tuple[Independence | Association, ...]
    adjusted: tuple[float, ...]
    fdr: float
    untested: tuple[tuple[str, str, str], ...] = ()

    @property
    def discoveries(self) -> tuple[Independence | Association, ...]:
        """The tests that are rejected: features that depend on each other."""
        pairs = zip(self.tests, self.adjusted, strict=True)
        return tuple(test for test, adjusted in pairs if adjusted <= self.fdr)

    @property
    def features(self) -> tuple[str, ...]:
        """The features that occur, in order."""
        names: dict[str, None] = {}
        for test in self.tests:
            names |= {test.rows: None, test.columns: None}
        for one, other, _ in self.untested:
            names |= {one: None, other: None}
        return tuple(names)

    def to_json(self) -> dict[str, Any]:
        """Return the tests as plain values."""
        tests = []
        for test, adjusted in zip(self.tests, self.adjusted, strict=True):
            numbers = {"adjusted_p_value": adjusted, "discovery": adjusted <= self.fdr}
            tests.append(test.to_json() | numbers)
        untested = [
            {"rows": one, "columns": other, "why": why} for one, other, why in self.untested
        ]
        return {
            "fdr": self.fdr,
            "method": "Benjamini-Yekutieli",
            "tests": tests,
            "untested": untested,
        }

    def plot(self) -> Figure:
        """Draw a matrix of the features: dark where a pair is strongly associated, with a dot for
        each discovery.
        """
        names = self.features
        place = {name: number for number, name in enumerate(names)}
        shade = np.full((len(names), len(names)), np.nan)
        dots = []
        for test, adjusted in zip(self.tests, self.adjusted, strict=True):
            for one, other in ((test.rows, test.columns), (test.columns, test.rows)):
                shade[place[one], place[other]] = -math.log10(adjusted)
                if adjusted <= self.fdr:
                    dots.append((place[other], place[one]))
        side = max(3.6, 1.8 + 0.45 * len(names))
        with drawing(side + 0.8, side) as (figure, axes):
            axes.grid(False)
            image = axes.imshow(shade, cmap="Blues", vmin=0.0)
            if dots:
                axes.plot(*zip(*dots, strict=True), "o", color="#D55E00", markersize=6)
            axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
            axes.set_yticks(range(len(names)), names)
            axes.set_title(
                "Which features depend on each other?\ndot: found at a false discovery rate of"
                f" {self.fdr:g}"
            )
            figure.colorbar(image, ax=axes, label="−log₁₀ of the adjusted p-value", shrink=0.8)
        return figure


def pairs_section(answer: PairTests) -> Section:
    """The tests of every pair as a section of the report: the matrix, and all p-values."""
    lines = sorted(
        zip(answer.adjusted, answer.tests, strict=True), key=lambda line: (line[0], line[1].p_value)
    )
    rows = []
    for adjusted, test in lines:
        verdict = "associated" if adjusted <= answer.fdr else ""
        rows.append(
            (
                f"{test.rows} × {test.columns}",
                p_value_text(test.p_value),
                p_value_text(adjusted),
                verdict,
            )
        )
    tested = len(answer.tests)
    paragraphs = [
        f"{len(answer.discoveries):,} of {tested:,} pairs are associated, at a false discovery rate"
        f" of at most {answer.fdr:g}, whatever the dependence of the tests (Benjamini and"
        " Yekutieli). The tests know the noise; they use what is published, and spend no budget."
    ]
    for one, other, why in answer.untested:
        paragraphs.append(f"Not tested: {one} × {other}: {why}.")
    return Section(
        heading="Which features depend on each other?",
        paragraphs=paragraphs,
        figure=answer.plot(),
        figure_label="matrix of the features, darker where a pair is more strongly associated",
        caption="Darker: a smaller adjusted p-value. A dot: found to be associated.",
        columns=("pair", "p-value", "adjusted", ""),
        rows=rows,
    )


def adjusted_p_values(p_values: Sequence[float]) -> Floats:
    """Adjust p-values so that rejecting those below q has a false discovery rate of at most q,
    however dependent.

    ``min over j with p_j >= p_i of m c p_j / rank(p_j)``, ``c = 1 + 1/2 + … + 1/m`` (Benjamini and
    Yekutieli, 2001). All tests use one noisy table or its margins; that their p-values are
    positively dependent, which would allow c = 1, is not proved.

    >>> adjusted_p_values([0.001, 0.04, 0.5]).round(4).tolist()
    [0.0055, 0.11, 0.9167]
    """
    values = np.asarray(p_values, dtype=np.float64)
    count = len(values)
    harmonic = (1 / np.arange(1, count + 1)).sum()
    order = np.argsort(values, kind="stable")
    # The k-th smallest may be k times as large.
    scaled = values[order] * count * harmonic / np.arange(1, count + 1)
    # From the largest down: a smaller p-value is never adjusted to a larger one.
    least = np.minimum.accumulate(scaled[::-1])[::-1]
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(least, 1.0)
    return adjusted


def choose_draws(pairs: int, fdr: float) -> int:
    """The number of tables to simulate: enough for a single discovery among `pairs` pairs, with
    room to spare.

    >>> choose_draws(6, 0.05), choose_draws(200, 0.05)
    (9999, 94049)
    """
    harmonic = sum(1 / number for number in range(1, pairs + 1))
    needed = math.ceil(4 * pairs * harmonic / fdr)
    return min(max(_LEAST_DRAWS, needed), _MOST_DRAWS)


def every_pair(
    release: "ReleaseValue",
    *,
    fdr: float = 0.05,
    ordered: Iterable[str] | Scores = (),
    draws: int | None = None,
    randomness: Randomness | None = None,
) -> PairTests:
    """Test every pair of features that some published table holds, at no cost in privacy.

    Parameters
    ----------
    release
        A release; pairs that cannot be tested are named and left out.
    fdr
        The bound on the expected share of independent pairs among those reported as
        associated.
    ordered
        Features with ordered levels, as in `Release.test`.
    draws, randomness
        As in `Release.test`; more draws if there are many pairs.

    Examples
    --------
    >>> import semidp
    >>> from semidp.promise import SeededRandomness
    >>> people = {"sex": [*"fm"] * 40, "vote": [*"yn"] * 40, "town": [*"aabb"] * 20}
    >>> request = semidp.publish.TableRequest(["sex", "vote", "town"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], ["sex", "vote", "town"])
    >>> answer = every_pair(semidp.run(plan, people, SeededRandomness(1)))
    >>> [(test.rows, test.columns) for test in answer.discoveries]
    [('sex', 'vote')]
    """
    check_level(fdr, "the false discovery rate")
    scores = dict(ordered) if isinstance(ordered, dict) else dict.fromkeys(ordered)
    pairs = _pairs(release)
    unknown = set(scores) - {name for pair in pairs for name in pair}
    if unknown:
        raise InputError(f"no pair of published features has {', '.join(sorted(unknown))}")
    count = choose_draws(len(pairs), fdr) if draws is None else draws
    tests: list[Independence | Association] = []
    untested = []
    for one, other in pairs:
        # Scores of other features mean nothing to this pair.
        chosen = {name: scores[name] for name in (one, other) if name in scores}
        try:
            test = assess_association(
                release, one, other, ordered=chosen, draws=count, randomness=randomness
            )
        except Refused as refusal:
            untested.append((one, other, str(refusal)))
            continue
        tests.append(test)
    if not tests:
        reason = "a table must hold both, with exact totals of one at least"
        if untested:
            reason = "{} × {}: {}".format(*untested[0])
        raise Refused(f"no pair of features can be tested: {reason}")
    adjusted = adjusted_p_values([test.p_value for test in tests])
    return PairTests(tuple(tests), tuple(adjusted.tolist()), fdr, tuple(untested))


def _pairs(release: "ReleaseValue") -> list[tuple[str, str]]:
    """Pairs of features that stand in one published table, each once."""
    pairs: dict[tuple[str, str], None] = {}
    for names in table_features(release):
        for one, other in itertools.combinations(names, 2):
            if (other, one) not in pairs:
                pairs[one, other] = None
    return list(pairs)
