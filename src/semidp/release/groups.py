"""Statistics of private outcomes by group, as a release publishes them: calibrating, measuring, writing, reading back.

What they are and why their noise suffices is in `grouped`; tables are in `run` and `values`.
"""

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.engines import Outcome
from semidp.errors import InputError
from semidp.grouped import Comparison, Estimates, GroupSums, SumSpace, outcome_mechanism, sum_space
from semidp.guarantees import Guarantee
from semidp.mechanisms import LaplaceMechanism, Mechanism
from semidp.noise import Randomness
from semidp.release.measured import Noise, advertised
from semidp.release.requests import GroupRequest, Statistic
from semidp.release.survey import Scope
from semidp.tradeoff import Tradeoff, tradeoff_from_json


@dataclass(frozen=True, eq=False)
class PublishedGroups:
    """One published statistic of an outcome by groups.

    Parameters
    ----------
    request
        What was asked for: statistic, outcome, groups.
    estimates
        The statistic of each set of groups, with exact counts and the standard errors of the noise.
    comparisons
        Whether the means of each set differ by more than sampling and noise explain.
    noisy
        The noisy sums as drawn, in steps of the grid above the lower bound, set after set.
    noise
        How they were measured; scale and losses in steps of the grid.
    guarantee, advertised, private
        As for a table.

    Examples
    --------
    >>> import semidp
    >>> passed = semidp.GroupRequest("proportion", semidp.Outcome("passed", 0, 1, 1), [["ward"]], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan(groups=[passed], invariants=[semidp.Margin("ward")])
    >>> release = semidp.run(plan, {"ward": ["a", "a", "b"], "passed": [1, 0, 1]})
    >>> release.groups[0].estimates[0].counts.tolist()  # exact; the proportions are not
    [2, 1]
    """

    request: GroupRequest
    estimates: tuple[Estimates, ...]
    comparisons: tuple[Comparison, ...]
    noisy: NDArray[np.int64] = field(repr=False)
    noise: Noise
    guarantee: Guarantee
    advertised: Tradeoff | None
    private: bool

    @property
    def name(self) -> str:
        """What its files are called."""
        return self.request.name

    @property
    def outcome(self) -> Outcome:
        """The outcome with its bounds and grid."""
        return self.request.outcome

    def files(self) -> dict[str, bytes]:
        """Return a CSV file for each set of groups: levels, exact count, estimate, standard error, noisy steps."""
        found, start = {}, 0
        for file, group, part in zip(self.request.files, self.request.by, self.estimates, strict=True):
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow([*group.names, "count", str(self.request.statistic), "standard_error", "noisy_steps"])
            steps = self.noisy[start : start + len(part.groups)].tolist()
            for (levels, *numbers), step in zip(part.rows(), steps, strict=True):
                writer.writerow([*levels, *("" if math.isnan(number) else number for number in numbers), step])
            found[file], start = text.getvalue().encode(), start + len(part.groups)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything but the estimates, which are in the CSV files, as plain values."""
        return {
            "name": self.name,
            "files": list(self.request.files),
            "noise": asdict(self.noise),
            "unit": float(self.outcome.width),
            "comparisons": [{**asdict(comparison), "p_value": comparison.p_value} for comparison in self.comparisons],
            "guarantee": self.guarantee.tradeoff.to_json(),
            "advertised": self.advertised.to_json() if self.advertised else None,
            "private": self.private,
        }

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], request: GroupRequest, scope: Scope, files: Mapping[str, bytes]
    ) -> "PublishedGroups":
        """Read what `to_json` and `files` wrote."""
        parts = [_read(files[file], len(group.names)) for file, group in zip(request.files, request.by, strict=True)]
        return cls(
            request=request,
            estimates=tuple(_rounded(estimates, request) for estimates, _ in parts),
            comparisons=tuple(
                Comparison(c["statistic"], c["degrees"], c["pooled"], c.get("sampling_sd"), c.get("widened"))
                for c in entry["comparisons"]
            ),
            noisy=np.concatenate([steps for _, steps in parts]),
            noise=Noise(**entry["noise"]),
            guarantee=Guarantee(scope.dataspace, scope.adjacency, tradeoff_from_json(entry["guarantee"])),
            advertised=tradeoff_from_json(entry["advertised"]) if entry["advertised"] else None,
            private=entry["private"],
        )


def group_space(request: GroupRequest, scope: Scope) -> SumSpace:
    """Return the sensitivity space of the sums that a request needs; refuse groups whose counts are not published."""
    return sum_space(scope.dataspace, scope.adjacency, request.outcome, request.by)


def group_mechanism(request: GroupRequest, scope: Scope) -> Mechanism:
    """Return the mechanism that a request names, or the one with the least expected loss, from public values only."""
    if request.budget is None:
        raise InputError(f"the groups {request.name!r} have no privacy budget: give epsilon, rho or mu")
    return outcome_mechanism(group_space(request, scope), request.budget, request.mechanism)


def published_groups(
    request: GroupRequest, mechanism: Mechanism, values: NDArray[np.int64], randomness: Randomness
) -> PublishedGroups:
    """Measure sums and publish the statistic: sums, or means and proportions over exact counts."""
    found = GroupSums(mechanism, mechanism.measure(values, randomness))
    statistic = found.sums if request.statistic is Statistic.sum else found.means
    return PublishedGroups(
        request=request,
        estimates=tuple(_rounded(statistic(block), request) for block in request.by),
        comparisons=tuple(_comparison(found, number) for number in range(len(request.by))),
        noisy=np.asarray(found.measurement.noisy, dtype=np.int64),
        noise=_described(mechanism),
        guarantee=mechanism.guarantee,
        advertised=advertised(mechanism),
        private=found.private,
    )


def _rounded(estimates: Estimates, request: GroupRequest) -> Estimates:
    """Say by how much the grid can have moved each estimate: zeros and ones lie on it."""
    half = 0.0 if request.statistic is Statistic.proportion else float(request.outcome.width) / 2
    each = estimates.counts if request.statistic is Statistic.sum else np.ones(len(estimates.groups))
    return replace(estimates, rounding=np.asarray(half * each, dtype=np.float64))


def _comparison(found: GroupSums, number: int) -> Comparison:
    """Compare the means of one set, with the largest spread that they allow; nothing where there is no record.

    Readers ask about the population that the records come from: without sampling any two groups differ.
    """
    block = found.blocks[number]
    compared = found.compare(block, sampling_sd=found.widest_sd(block))
    return compared if math.isfinite(compared.pooled) else Comparison(0.0, 0, 0.0)


def _described(mechanism: Mechanism) -> Noise:
    """Return what the report says of a mechanism, next to noise for one record, pushed to a by group privacy."""
    space = mechanism.space
    naive = None
    if not space.is_zero:
        once, a = space.naive, space.adjacency.a
        if isinstance(mechanism, LaplaceMechanism):
            larger = (a * once.l1 / space.l1) ** 2
        else:
            larger = a * a * once.l2_squared / space.l2_squared
        naive = math.sqrt(mechanism.variance * larger * math.prod(space.shape))
    return Noise(mechanism.name, mechanism.scale, mechanism.claim, mechanism.expected_l2, naive)


def _read(content: bytes, features: int) -> tuple[Estimates, NDArray[np.int64]]:
    rows = list(csv.reader(io.StringIO(content.decode())))[1:]
    numbers = [[float(cell) if cell else math.nan for cell in row[features:]] for row in rows]
    columns = np.array(numbers, dtype=np.float64).reshape(len(rows), 4)
    counts = np.array([int(row[features]) for row in rows], dtype=np.int64)
    steps = np.array([int(row[-1]) for row in rows], dtype=np.int64)
    return Estimates(tuple(tuple(row[:features]) for row in rows), counts, columns[:, 1], columns[:, 2]), steps
