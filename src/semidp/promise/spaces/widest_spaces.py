"""Exact statistics whose values nobody has said: the published values under which most can change.

What somebody else knows or publishes is often known by its features alone. A claim about it must
hold for any values.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.schema.counts import Table
from semidp.promise.schema.margins import LARGEST_MASK, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace, Margin, normalize_margins


def even_space(schema: Schema, margins: Iterable[Margin], each: int) -> Dataspace:
    """Return the dataspace of the table with `each` records in every possible cell.

    Without structural zeros the table itself is not written down: it may be large where its margins
    are not.

    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> even_space(schema, [Margin("sex")], 2).value(Margin("sex")).counts.tolist()
    [6, 6]
    """
    if schema.structural_zeros:
        counts = each * np.asarray(schema.possible, dtype=np.int64)
        return Dataspace.from_table(Table(schema, counts), margins)
    values = {}
    for margin in normalize_margins(schema, margins):
        part = schema.restrict(margin.names)
        cells_below = schema.grid.count_finer_cells(schema.view(margin.names))
        values[margin] = Table(part, np.full(part.shape, each) * cells_below)
    return Dataspace.from_totals(schema, values, each * schema.size)


def widest_space(schema: Schema, margins: Iterable[Margin], known: Dataspace, a: int) -> Dataspace:
    """Return a dataspace with S_a(t) ⊆ S_a(t0) for every t of the margins that agrees with what is
    known of it.

    t0 has at least `a` records in every cell that the known values leave possible. Let X, X' be
    adjacent in D_t. At most a of their records differ, and every cell of t0 holds as many; the rest
    of t0 is filled up with records that both share. So X, X' become adjacent datasets of D_t0 (any
    a records, or exchanges: carriers are among those that differ), and a query that sums over
    records has the same difference. Margins that share no feature are filled up one by one, because
    records can be put together from any of theirs; with structural zeros only the whole table will
    do.

    Parameters
    ----------
    schema
        The features of a record.
    margins
        What is exact.
    known
        Values that are known of it: where they are 0 nobody can be.
    a
        How many records may differ.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fmx"), Feature("region", "nsw")])
    >>> known = Dataspace.from_totals(
    ...     schema, {Margin("sex"): Table(schema.restrict(["sex"]), [4, 1, 0])}
    ... )
    >>> [
    ...     total.counts.tolist()
    ...     for total in widest_space(schema, [Margin("sex"), Margin("region")], known, 3).totals
    ... ]
    [[6, 3, 0], [3, 3, 3]]
    """
    kept = normalize_margins(schema, margins)
    # With structural zeros only the whole table will do.
    groups = [list(kept)] if schema.structural_zeros else _group_connected_margins(schema, kept)
    filled = [_fill_possible_cells(schema, together, known, a) for together in groups]
    n = max((int(counts.sum()) for _, counts in filled), default=0)
    values: dict[Margin, Table] = {}
    for together, (part, counts) in zip(groups, filled, strict=True):
        # All groups describe the same records: the largest cell takes what is missing to the same
        # n.
        flat = counts.ravel()
        flat[int(flat.argmax())] += n - int(flat.sum())
        table = Table(part, counts)
        values |= {margin: table.margin(margin.names) for margin in together}
    return Dataspace.from_totals(schema, values, n)


def _fill_possible_cells(
    schema: Schema, together: Sequence[Margin], known: Dataspace, a: int
) -> tuple[Schema, NDArray[np.int64]]:
    """A records in every cell of some margins together that the known values leave possible."""
    names = schema.names
    if not schema.structural_zeros:
        names = tuple(name for margin in together for name in margin.names)
    part = schema.restrict(names)
    if part.size > LARGEST_MASK:
        raise Refused(
            f"the totals of {', '.join(map(str, together))} have too many cells: give their values"
        )
    inside = {}
    for margin, total in zip(known.margins, known.totals, strict=True):
        if any(margin.is_within(whole) for whole in together):
            inside[margin] = total
    published = Dataspace.from_totals(part, inside, known.n).published_totals
    possible = part.grid.find_inhabited_cells(part.possible, published)
    # A records a cell hold every record that two adjacent datasets differ in (see `widest_space`).
    counts = np.full(part.shape, a, dtype=np.int64)
    if possible is not None:
        counts = np.where(possible, counts, 0)
    return part, counts


def _group_connected_margins(schema: Schema, margins: Iterable[Margin]) -> list[list[Margin]]:
    """Return margins in groups that share no feature."""
    groups: list[tuple[set[int], list[Margin]]] = []
    for margin in margins:
        axes, mine = set(list_axes(schema.view(margin.names))), [margin]
        for other in [group for group in groups if group[0] & axes]:
            groups.remove(other)
            axes = axes | other[0]
            mine = [*other[1], *mine]
        groups.append((axes, mine))
    return [mine for _, mine in groups]
