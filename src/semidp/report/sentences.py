"""What a release says about itself, in plain words; of a private outcome in `outcome_sentences`.

The page and the terminal share every sentence.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.core.exact import plain, rounded_up, sqrt_up
from semidp.core.guarantee import Guarantee, detection
from semidp.core.margins import View, maximal, meet
from semidp.core.scope import Scope
from semidp.core.spaces.dataspace import Datasets, Dataspace, Margin
from semidp.core.tradeoff.base import Order, Tradeoff
from semidp.core.tradeoff.budget import Budget
from semidp.core.tradeoff.smooth import ZCDP, Gaussian
from semidp.errors import SemidpError
from semidp.mechanisms.base import Mechanism
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.output.cells import METADATA
from semidp.publishing.parts.partitions import PartitionedTables
from semidp.publishing.pipeline import Prepared, implied_guarantee
from semidp.publishing.plan import Plan
from semidp.publishing.release import Release
from semidp.report import outcome_sentences as outcomes
from semidp.report.cells import MOST_CELLS, error_text, faint_cells, number_text, scale_text
from semidp.statistics.protocol import Published, Request
from semidp.statistics.tables.published import INTERVALS_BELOW, ProductTable, PublishedProduct, PublishedTable

_SHOWN_MARGINS = 8
_SHOWN_TABLES = 40
_SAME = 1e-4  # guarantees whose numbers differ by less, relatively, are called as strong: they are printed alike

_CLAIMS = {
    "exact": "exact: the noise was drawn exactly from the distribution of the proof, in whole numbers",
    "ideal": "ideal arithmetic: the proof is for real-valued noise; the output was rounded to whole numbers first",
}
_LEAST_MISSED = 0.0005  # of attempts that the best attacker misses: less is hardly any protection (mu 4.9, epsilon 7.6)


def exact_part(dataspace: Datasets) -> list[str]:
    """Name what is published exactly.

    >>> exact_part(Dataspace.described("state totals"))
    ['state totals']
    """
    if not isinstance(dataspace, Dataspace):
        return [dataspace.summary()]
    return [*(f"counts of {margin}" for margin in dataspace.margins), f"the number of records, {dataspace.n:,}"]


def noisy_part(release: Release) -> list[str]:
    """Name what is published with noise."""
    tables = [
        f"{' by '.join(table.schema.names)}: {table.schema.size:,} cells"
        if not table.noise.absent
        else f"nothing of {' by '.join(table.schema.names)}: the exact totals fix the whole table"
        for table in release.alone
    ]
    if release.product is not None:
        several = release.product.tables
        tables += [
            f"{' by '.join(table.schema.names)}: {table.schema.size:,} cells, together with the other tables"
            for table in several[:_SHOWN_TABLES]
        ]
        if len(several) > _SHOWN_TABLES:
            left = several[_SHOWN_TABLES:]
            tables.append(f"{len(left):,} more tables: {sum(table.schema.size for table in left):,} cells")
    groups = [f"{outcomes.titled(g)}: {sum(len(p.groups) for p in g.estimates):,} groups" for g in release.groups]
    regressions = [f"{outcomes.regressed(r)}: {len(r.terms):,} coefficients" for r in release.regressions]
    quantiles = [f"{outcomes.quantiled(q)}: {sum(map(len, q.groups)):,} groups" for q in release.quantiles]
    parts = [
        f"{' by '.join(table.features)}: {table.cells:,} cells"
        + (f" in {table.parts:,} parts" if table.parts > 1 else "")
        for result in release.partitioned
        for table in part_errors(release, result)
    ]
    return [*tables, *parts, *groups, *regressions, *quantiles]


def strength(guarantee: Guarantee, report_delta: Fraction) -> list[str]:
    """Say how strong a guarantee is: what the best attacker achieves, then the numbers for specialists.

    >>> from semidp.core.spaces.adjacency import Ball, Exchange
    >>> from semidp.core.tradeoff.curves import gaussian
    >>> for adjacency in (Ball(2), Exchange(2)):
    ...     print(*strength(Guarantee(Dataspace.described("states"), adjacency, gaussian(1)), Fraction(1, 10**9)))
    The best attacker who accepts 5% false alarms finds out in at most 26% of cases. 1-GDP, which is (6.17394, 1e-9)-DP
    The best attacker ... 26% of cases. 1-GDP, which is (6.17394, 1e-9)-DP, for exchanges of one person
    """
    if guarantee.tradeoff.is_trivial:
        return ["The release says nothing beyond the exact totals."]
    adjacency = guarantee.adjacency
    pairs = "" if adjacency.protects_groups else f", for {adjacency.words.pairs}"
    return [detection(guarantee.tradeoff), f"{_numbers(guarantee.tradeoff, report_delta)}{pairs}"]


def weakness(guarantee: Guarantee) -> tuple[str, ...]:
    """Warn of a guarantee that is none to speak of: the best attacker is all but certain.

    >>> from semidp.core.spaces.adjacency import Ball
    >>> from semidp.core.tradeoff.curves import gaussian
    >>> known = Dataspace.described("states")
    >>> [len(weakness(Guarantee(known, Ball(1), gaussian(mu)))) for mu in (1, 4, 1_000_000)]
    [0, 0, 1]
    """
    missed = float(guarantee.tradeoff(0.95))  # by an attacker who accepts 5% false alarms, as in `detection`
    if missed > _LEAST_MISSED:
        return ()
    return ("This budget is so large that hardly anybody is protected: an attacker who wants to find out does.",)


def _numbers(tradeoff: Tradeoff, report_delta: Fraction) -> str:
    name = name_of(tradeoff)
    restated = f"({rounded_up(tradeoff.epsilon(report_delta))}, {plain(report_delta)})-DP"
    return f"{name}, which is {restated}" if name else restated


def name_of(tradeoff: Tradeoff) -> str | None:
    """Name a tradeoff function the way specialists do, or None where it has no short name.

    >>> from semidp.core.tradeoff.curves import approximate, gaussian, zcdp
    >>> name_of(gaussian(1)), name_of(zcdp("1/2")), name_of(approximate(1))
    ('1-GDP', '0.5-zCDP', 'pure 1-DP')
    """
    mu_squared, epsilon, rho = tradeoff.implied_mu_squared(), tradeoff.implied_epsilon(), tradeoff.implied_rho()
    if mu_squared is not None:
        return f"{rounded_up(sqrt_up(mu_squared))}-GDP"
    if epsilon is not None:
        return f"pure {rounded_up(epsilon)}-DP"
    return f"{rounded_up(rho)}-zCDP" if rho is not None else None


def forgotten(dataspace: Dataspace, said: Iterable[Tradeoff | None]) -> Tradeoff | None:
    """Return what all noise together would be said to give for one record, where that is known and differs."""
    known = list(said)
    if not dataspace.margins or any(curve is None for curve in known):
        return None
    first, *others = (curve for curve in known if curve is not None)
    return first.compose(*others) if others else first


def together_text(scope: Scope) -> str:
    """Say in a few words how many records change together in the guarantee."""
    return scope.adjacency.words.together(exact=bool(scope.dataspace.margins))


def why_heading(scope: Scope) -> str:
    """Return the heading of the part on records that move together."""
    semi = scope.semi_adjacency
    if semi is not None and semi.bound == 0:
        return "Why nothing is left to protect"
    return scope.adjacency.words.heading(exact=bool(scope.dataspace.margins))


def why_together(scope: Scope) -> list[str]:
    """Say why records must move together, and how many."""
    a, semi = scope.adjacency.a, scope.semi_adjacency
    if not scope.dataspace.margins:
        return ["Only the number of records is published exactly, so one record can change alone."]
    first = (
        "Had one person's record been different and nothing else, the published totals would not be what they are. "
        "For that person to have been somebody else, other records must have been different too."
    )
    if semi is None:
        return [first, f"How many is not known for these totals; a = {a} was given by whoever made the release."]
    if semi.bound == 0:
        return ["The published totals leave no other dataset: there is nothing left to protect."]
    most = f"a(t) = {semi.worst_case}" if semi.worst_case is not None else f"at most {semi.bound}"
    return [first, *scope.adjacency.words.why(most)]


def implied(release: Release | Prepared) -> list[str]:
    """Say what the same noise guarantees under the other adjacency, where that is known."""
    other = implied_guarantee(release)
    if other is None or other.tradeoff.is_trivial:
        return []
    numbers = _numbers(other.tradeoff, release.plan.report_delta)
    return [f"{other.adjacency.words.same_noise}: {numbers}"]


def also_known(release: Release) -> tuple[list[tuple[str, str, str, str]], int]:
    """Return what the noise guarantees if an attacker also knew a one-way margin, one row each, and how many are left.

    The values of such a margin are confidential: each row holds for any. What is not known for the noise is left out.

    >>> import semidp
    >>> plan = semidp.Plan([semidp.TableRequest(["sex", "ill"], semidp.Budget.zcdp("1/2"))], ["sex"],
    ...     features=[semidp.Feature("ill", ["n", "y"])])
    >>> also_known(semidp.run(plan, {"sex": ["f", "m", "m", "f"], "ill": ["n", "y", "n", "n"]}))
    ([('ill', 'any 3 records', '0.25-zCDP, which is (4.43669, 1e-9)-DP', 'stronger')], 0)
    """
    space = release.scope.dataspace
    open_names = [name for name in space.schema.names if not space.publishes(Margin(name))]
    rows = []
    for name in open_names[:_SHOWN_MARGINS]:
        try:
            found = release.under([*space.margins, Margin(name)])
        except SemidpError:
            continue
        order = change(found.tradeoff, release.guarantee.tradeoff, release.plan.report_delta)
        numbers = strength(found, release.plan.report_delta)[-1]
        rows.append((name, str(found.adjacency), numbers, "as strong" if order is Order.EQUAL else str(order.value)))
    return rows, max(len(open_names) - _SHOWN_MARGINS, 0)


def change(now: Tradeoff, before: Tradeoff, delta: Fraction) -> Order:
    """Return how a guarantee changed as a sentence may say it: numbers that are printed alike count as equal.

    The noise of a product is rounded up (σ² to 24 bits, a joint cost within 1e-5 of the budget is left at the budget),
    so that its cost, computed anew, is a little less than what was charged. That is no stronger guarantee.

    >>> one, a_little_less = Gaussian(Fraction(1)), Gaussian(Fraction(99999997, 100000000))
    >>> a_little_less.compare(one).name, change(a_little_less, one, Fraction(1, 10**9)).name
    ('STRONGER', 'EQUAL')
    >>> change(Gaussian(Fraction(99, 100)), one, Fraction(1, 10**9)).name
    'STRONGER'
    """
    order = now.compare(before)
    if order is Order.EQUAL:
        return order
    if isinstance(now, Gaussian) and isinstance(before, Gaussian):  # one number says it all
        numbers = [(float(now.mu_squared), float(before.mu_squared))]
    elif isinstance(now, ZCDP) and isinstance(before, ZCDP):
        numbers = [(float(now.rho), float(before.rho))]
    else:
        deltas = {delta, Fraction(1, 10**3), Fraction(1, 10**6)}
        numbers = [(now.epsilon(each), before.epsilon(each)) for each in deltas]
    same = all(math.isclose(one, other, rel_tol=_SAME) for one, other in numbers)
    return Order.EQUAL if same else order


def table_summary(table: PublishedTable) -> str:
    """Say how one table was made."""
    if table.noise.absent:
        return "The exact totals fix every cell of this table, so it is published exactly and needs no noise."
    how = f"Measured with the {table.noise.mechanism} mechanism (scale {scale_text(table.noise.scale)})"
    if table.residuals is not None:
        how = f"Measured on {len(table.residuals.sigma2)} residuals, each with noise of its own"
    if table.fitted.kind == "none":
        return (
            f"{how}. This is the measurement itself: counts may be negative, and exact totals are met up to rounding."
        )
    if table.counts.dtype.kind == "i":
        made = "Each count is a whole number, none is negative, and every exact total is met."
    else:
        made = "No count is negative, but counts need not be whole."
        made += " Every exact total is met up to rounding." if table.fitted.optimal else ""
    return f"{how} and fitted to the exact totals. {made} {table.fitted.note}".strip()


def errors_caption(table: PublishedTable | ProductTable, absent: bool, shown: bool) -> str:
    """Say how far the estimates may be off; `shown` says that each error stands below its count."""
    if absent:
        return "Published counts, which follow from the exact totals: there is no noise and no error."
    below = ", and below each the standard error of its estimate" if shown else ""
    largest = float(table.standard_errors.max(initial=0.0))
    low = faint_cells(table)
    mark = " (marked ≈)" if shown else ""
    than = "two standard errors" if table.half_widths is None else "the half-width of their 95% interval"
    faint = (
        f" Noise dominates {int(low.sum()):,} of {low.size:,} counts{mark}: they are smaller than {than}."
        if low.any()
        else ""
    )
    return (
        f"Published counts{below}. A standard error belongs to the estimate, which the file has beside the count, and "
        f"not to the fitted count; the largest is {error_text(largest)}.{faint}"
    )


def claim(result: Published) -> str:
    """Say whether the claim is about the numbers that were drawn."""
    if isinstance(result, PublishedTable) and result.noisy.dtype.kind != "i":
        return "for studies: the proof is for real-valued noise, and floating-point numbers are published as drawn"
    return _CLAIMS[result.noise.claim]


def files(release: Release) -> list[tuple[str, str]]:
    """Name the files of a release and say what they hold."""
    found = []
    for table in release.alone:
        counts, measurements = table.files(release.form)
        what = " by ".join(table.schema.names)
        found.append((counts, f"the published counts of {what}, one row a cell"))
        found.append((measurements, f"the measurements of {what} before fitting, for statisticians"))
    if release.product is not None:
        *names, measurements = release.product.files(release.form)
        for name, part in zip(names[:_SHOWN_TABLES], release.product.tables, strict=False):
            what = " by ".join(part.schema.names)
            found.append((name, f"the counts of {what}, with estimates and their standard errors"))
        left = len(names) - _SHOWN_TABLES
        if left > 0:
            found.append((names[_SHOWN_TABLES], f"the same of the next table, and so on: {left:,} files"))
        found.append((measurements, "the measured residuals of all tables, for statisticians"))
    for result in release.partitioned:
        *names, measurements = result.files(release.form)
        for name, at_cut in zip(names, result.overview, strict=True):
            found.append((name, f"the counts of {' by '.join(at_cut.schema.names)}, with estimates and errors"))
        found.append((measurements, "the measured residuals at this depth and above, for statisticians"))
    if release.partition is not None:
        first, depth = release.partition.parts[0], release.partition.depth
        found += [(f"{first.folder}/{name}", f"the same of one {depth}, in every detail") for name in first.files]
        found.append(("parts.json", f"every {depth} and its files, for machines"))
    for group in release.groups:
        several = group.request.files[len(group.request.by) :]
        for number, (file, by) in enumerate(zip(group.request.files, group.request.by, strict=False)):
            what = f"the {group.request.statistic} of {group.outcome.column} by {' and '.join(by.names)}"
            found.append((file, f"{what}, one row a group"))
            found += [(other, f"differences of {what}, one row a pair") for other in several[number : number + 1]]
    for regression in release.regressions:
        found.append((regression.request.files[0], f"the {outcomes.regressed(regression)}"))
        if regression.query is not None:
            found.append((regression.request.files[1], f"what was measured for the {outcomes.regressed(regression)}"))
    for quantile in release.quantiles:
        for file, by in zip(quantile.request.files, quantile.request.by, strict=True):
            what = f"the {outcomes.quantile_words(quantile)} of {quantile.request.outcome.column}"
            found.append((file, f"{what} by {' and '.join(by.names)}, one row a group"))
    if any(name.endswith(".csv") for name, _ in found):
        found.append((METADATA, "what the columns of these files mean, for machines (CSV on the Web)"))
    return [*found, ("release.json", "the plan, the exact totals and the guarantee, for machines")]


def cell_errors(mechanism: Mechanism) -> dict[str, float]:
    """Return how far off the cells of a measurement are: standard errors, and the half-widths of 95% intervals.

    >>> from semidp.mechanisms.selection import choose
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.core.tradeoff.budget import Budget
    >>> errors = cell_errors(choose(two_way()[0], Budget.gdp(1)))
    >>> round(errors["standard_error"], 3), round(errors["half_width"], 3), list(errors)[-2:]
    (1.167, 2.333, ['narrowest', 'widest'])
    """
    if isinstance(mechanism, ResidualMechanism):  # measures residuals: its one table is rebuilt from them
        return table_errors(mechanism, 0)
    unit, size = float(mechanism.space.unit), math.prod(mechanism.space.shape)
    if size > MOST_CELLS:
        root = mechanism.expected_l2 * unit / math.sqrt(size)
        return {"standard_error": root, "smallest": root, "largest": root}
    half_widths = mechanism.half_widths * unit if size < INTERVALS_BELOW else None
    return _spread(mechanism.standard_errors() * unit, half_widths)


def table_errors(mechanism: ResidualMechanism, number: int) -> dict[str, float]:
    """Return the same for one of the tables that share a budget."""
    errors = mechanism.table_errors(number)
    return _spread(errors, mechanism.table_half_widths(number) if errors.size < INTERVALS_BELOW else None)


def _spread(errors: NDArray[np.float64], half_widths: NDArray[np.float64] | None) -> dict[str, float]:
    """Root mean square, least and largest of the standard errors and of the half-widths of cells with noise.

    Large tables have no intervals.
    """
    noisy = errors > 0
    found = {}
    named = [(("standard_error", "smallest", "largest"), errors)]
    if half_widths is not None:
        named.append((("half_width", "narrowest", "widest"), half_widths))
    for (mean, least, most), values in named:
        found[mean] = math.sqrt(float((values**2).mean())) if values.size else 0.0
        found[least] = float(values[noisy].min()) if noisy.any() else 0.0
        found[most] = float(values[noisy].max()) if noisy.any() else 0.0
    return found


def errors_text(errors: dict[str, float]) -> str:
    """Say how far off a cell is before anything is drawn, in four digits, by which plans are compared.

    >>> errors_text({"standard_error": 1.1547, "smallest": 1.0, "largest": 2.0, "narrowest": 2.0, "widest": 4.0})
    'standard error 1.155 a cell (1 to 2), 95% within ±2 to ±4'
    """
    low, high = f"{errors['smallest']:.4g}", f"{errors['largest']:.4g}"
    span = "" if low == high else f" ({low} to {high})"
    within = f", 95% {_within(errors, lambda width: f'{width:.4g}')}" if "widest" in errors else ""
    return f"standard error {errors['standard_error']:.4g} a cell{span}{within}"


def _within(errors: Mapping[str, float], text: Callable[[float], str]) -> str:
    """Say within what 95% of all draws are: for every cell, or from the best cell to the worst."""
    low, high = text(errors["narrowest"]), text(errors["widest"])
    return f"within ±{high}" if low == high else f"within ±{low} to ±{high}"


def product_errors(request: Request, mechanism: Mechanism) -> list[dict[str, Any]]:
    """Return for each table whose residuals are measured its name, features and the standard errors of estimates."""
    assert isinstance(mechanism, ResidualMechanism)
    found: list[dict[str, Any]] = []
    for number, table in enumerate(request.tables):
        errors = table_errors(mechanism, number)
        widths: dict[str, Any] = {name: errors[name] for name in ("narrowest", "widest") if name in errors}
        found.append(
            {
                "name": table.name,
                "features": list(table.features),
                "cells": mechanism.space.schema.grid.size_of(mechanism.space.views[number]),
                "smallest_standard_error": errors["smallest"],
                "largest_standard_error": errors["largest"],
                "rms_standard_error": errors["standard_error"],
                **widths,
            }
        )
    return found


@dataclass(frozen=True)
class PartErrors:
    """A table that was asked for: its cells, the parts they lie in, and its errors over all of them."""

    features: tuple[str, ...]
    cells: int
    parts: int
    rms: float
    largest: float
    notes: tuple[str, ...]


def part_errors(release: Release, result: PartitionedTables) -> list[PartErrors]:
    """Return the errors of every table that was released part by part, over all parts."""
    assert release.partition is not None
    schema, found = result.mechanism.space.schema, []
    below = {table.name for table in result.below}
    for table in result.request.tables:
        own = schema.restrict(table.features)
        if table.name in below:
            parts = [part for each in release.partition.parts for part in each.tables if part.name == table.name]
            variance = sum(part.variance for part in parts)
            largest = max(part.largest_standard_error for part in parts)
            fits = [part.fitted for part in parts]
        else:
            at_cut = next(known for known in result.overview if known.name == table.name)
            variance, fits = float((at_cut.standard_errors**2).sum()), [at_cut.fitted]
            largest = float(at_cut.standard_errors.max(initial=0.0))
        notes = tuple(dict.fromkeys(fit.note for fit in fits if not fit.optimal and fit.note))[:3]
        found.append(PartErrors(own.names, own.size, len(fits), math.sqrt(variance / own.size), largest, notes))
    return found


def product_lines(request: Request, mechanism: Mechanism) -> list[str]:
    """Say how large the errors of each table that shares a budget are, and what the joint sensitivity saved."""
    assert isinstance(mechanism, ResidualMechanism)
    if not mechanism.sigma2:
        return ["no noise: the exact totals fix every table"]
    several = len(request.tables) > 1
    what = f"{len(mechanism.space.views)} tables from one budget" if several else " by ".join(request.features)
    lines = [f"{mechanism.name} for {what}, {mechanism.claim} claim"]
    if mechanism.saved:
        lines[0] += f"; the joint sensitivity saved {mechanism.saved:.0%} of the variance"
    for part in product_errors(request, mechanism):
        low, high = error_text(part["smallest_standard_error"]), error_text(part["largest_standard_error"])
        span = high if low == high else f"{low} to {high}"
        within = f", 95% {_within(part, error_text)}" if "widest" in part else ""
        lines.append(f"{part['name']}: standard error {span} a cell{within}, {part['cells']:,} cells")
    return lines


def product_paragraphs(product: PublishedProduct) -> list[str]:
    """Say how the tables hang together and how far they may be off."""
    noise, mechanism = product.noise, product.mechanism
    if noise.absent:
        return ["The exact totals fix every table: no noise was needed."]
    paragraphs = [
        f"{len(product.tables)} tables share one budget. What they have in common was measured once: "
        f"{len(mechanism.sigma2)} residuals with noise, those that the exact totals fix without. So every number that "
        "occurs in two tables is the same number. Estimates are unbiased; their standard errors are those of the noise "
        "alone. The counts are whole numbers fitted to the estimates, from the coarsest table to the finest, and may "
        "lie outside the intervals, which belong to the estimates.",
    ]
    if mechanism.saved:
        paragraphs.append(
            f"The exact joint sensitivity of all residuals saved {mechanism.saved:.0%} of the noise's variance against "
            "adding up their costs one by one."
        )
    whole = [table for table in product.tables if table.fitted.kind == "integer"]
    if whole:
        away = math.sqrt(sum(table.fitted.loss for table in whole))
        least = math.sqrt(sum(table.fitted.bound for table in whole))
        paragraphs.append(
            f"The whole numbers lie {error_text(away)} from the estimates, over all cells; real numbers that are not "
            f"negative and have the same totals would lie at least {error_text(least)} away."
        )
    missed = [f"{table.name}: {table.fitted.note}" for table in product.tables if not table.fitted.optimal]
    return [*paragraphs, *missed]


def product_losses(product: PublishedProduct) -> dict[str, float]:
    """Return the expected distance from the truth beside tables one by one and ordinary differential privacy."""
    others = {"one by one,\nsame promise": product.one_by_one_l2, "ordinary DP,\ngroup privacy": product.noise.naive_l2}
    return {"this release": product.noise.expected_l2, **{name: loss for name, loss in others.items() if loss}}


def losses_caption(product: PublishedProduct, scope: Scope) -> str:
    """Name the promise of each number in the picture of losses."""
    a = scope.adjacency.a
    records = f"{a} record{'s' if a != 1 else ''}"
    promise = scope.adjacency.words.promise
    alone = "" if product.one_by_one_l2 is None else "so do the tables measured one by one, with the best split; "
    return (
        "Root mean squared distance between all estimates and the true tables, known before any noise was drawn. This "
        f"release promises {name_of(product.guarantee.tradeoff)} for {promise}; {alone}ordinary differential privacy "
        f"promises it for any {records}, whether they keep the totals or not, by group privacy from one."
    )


def fits_together(product: PublishedProduct) -> tuple[str, list[tuple[str, str, str]]]:
    """Say how the tables hang together: for each, what it shares with which others, and what of it is exact."""
    space = product.mechanism.space
    named, margins = space.schema.named, [total.view for total in space.dataspace.published]
    views = dict(zip((table.name for table in product.tables), space.views, strict=True))
    rows = []
    for name, view in list(views.items())[:_SHOWN_TABLES]:
        shared: dict[View, list[str]] = {}
        for other, theirs in views.items():
            if other != name and any(met := meet(view, theirs)):
                shared.setdefault(met, []).append(other)
        agrees = [f"{' by '.join(named(met))} ({_some(others)})" for met, others in shared.items()]
        exact = [" by ".join(named(met)) for met in maximal(meet(view, margin) for margin in margins) if any(met)]
        rows.append((name, "; ".join(agrees) or "only n", "; ".join(exact) or "only n"))
    if product.decomposable:
        said = "The tables and the exact totals are decomposable: there are records that have all of them."
    else:
        said = (
            "The tables agree wherever they overlap. They hang together in a circle (they are not decomposable), so "
            "that nothing promises that one set of records has all of them."
        )
    return said, rows


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def budget_parts(plan: Plan) -> list[str]:
    """Say how a budget is divided; nothing where there is one part.

    >>> from semidp import Budget, TableRequest
    >>> wanted = [TableRequest(["sex"], Budget.zcdp(1), name="a"), TableRequest(["age"], Budget.zcdp(3), name="b")]
    >>> budget_parts(Plan(wanted))
    ['1-zCDP for a', '3-zCDP for b']
    """
    if len(plan.requests) < 2:
        return []
    parts = [(request.budget, _part(request)) for request in plan.requests]
    return [f"{_stated(budget)} for {what}" for budget, what in parts if budget is not None]


def _part(request: Request) -> str:
    return f"{len(request.tables)} tables together" if len(request.tables) > 1 else request.name


def _stated(budget: Budget) -> str:
    return str(budget).partition(" (")[0] if budget.kind == "approximate" else name_of(budget.tradeoff()) or str(budget)


def apart(release: Release) -> list[str]:
    """Say that tables with budgets of their own were measured one by one."""
    if len(release.alone) < 2:
        return []
    return [
        f"{len(release.alone)} tables were measured one by one, each with a budget of its own: what is not exact and "
        "occurs in two of them is two numbers."
    ]


def limits(release: Release) -> list[str]:
    """Say what the release does not protect."""
    unit = (
        f"One record is one person: this was checked with the column {release.plan.id!r}."
        if release.plan.id
        else "One record is taken to be one person, which was not checked: who has several is protected less."
    )
    repeated = (
        "The privacy loss of this release was charged to a ledger, together with the others that it holds."
        if release.ledger
        else "No ledger was given: other releases of the same data are not accounted for, and together protect less."
    )
    explanation = release.guarantee.explain()
    return [
        explanation.unprotected,
        explanation.side_information,
        unit,
        repeated,
        *release.scope.disclosures,
    ]


def summary(release: Release, where: str | None = None) -> str:
    """Return the release in a few lines, for a terminal."""
    scope = release.scope
    lines = [] if release.private else ["NOT PRIVATE: drawn with a seed or by a mechanism meant for studies.", ""]

    def say(word: str, *texts: str) -> None:
        lines.extend(f"{word:10} {text}" for text in texts)

    def say_once(word: str, texts: Iterable[str]) -> None:
        for number, text in enumerate(texts):
            say("" if number else word, text)

    say("exact", *exact_part(scope.dataspace))
    say("with noise", *noisy_part(release))
    for table in release.alone:
        loss = f"expected distance from the truth {table.noise.expected_l2:,.1f}"
        if table.noise.naive_l2:
            loss += f" (ordinary DP at the same guarantee: {table.noise.naive_l2:,.1f})"
        say("mechanism", f"{table.noise.mechanism}, scale {scale_text(table.noise.scale)}, {loss}")
    if release.product is not None:
        say("mechanism", *product_lines(release.product.request, release.product.mechanism))
    for part in (part for result in release.partitioned for part in part_errors(release, result)):
        errors = f"standard error {error_text(part.rms)}, largest {error_text(part.largest)}"
        say("mechanism", f"residuals, {' by '.join(part.features)}: {errors}")
    for group in release.groups:
        scale = scale_text(group.noise.scale * float(group.outcome.width))
        say("mechanism", f"{group.noise.mechanism}, scale {scale} in each sum")
        say_once("estimate", outcomes.group_lines(group))
        say("warning", *outcomes.grid_warning(group))
    for regression in release.regressions:
        say("mechanism", f"{regression.noise.mechanism}, for the {outcomes.regressed(regression)}")
        rows = regression.rows()
        say_once("estimate", (f"{term}: {number_text(value)} ± {number_text(error)}" for term, value, error in rows))
    for quantile in release.quantiles:
        ranks = "" if quantile.rank_error is None else f", at most {quantile.rank_error:,} ranks off in 95% of choices"
        say("mechanism", f"{quantile.noise.mechanism}{ranks}")
        say("columns", ", ".join(quantile.headings))
        say_once("estimate", outcomes.quantile_lines(quantile))
    say("apart", *apart(release))
    say("budget", *budget_parts(release.plan))
    exact = [result for result in (*release.alone, release.product) if result is not None and result.noise.absent]
    say("claim", *dict.fromkeys(claim(result) for result in release.results if result not in exact))
    say("adjacency", together_text(scope))
    say("strength", *strength(release.guarantee, release.plan.report_delta))
    if not scope.adjacency.protects_groups:
        say("otherwise", *implied(release))
    if where:
        say("written", where)
    return "\n".join(lines)
