"""The table that a test is asked of: noisy counts by rows, columns and strata, with its exact
margins.

Every test of a release starts here. Which statistic it computes is the business of the modules that
use this one.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.measured import (
    Measured,
    clustering,
    level_codes,
    measured_table,
    select_public,
)
from semidp.promise.noise.randomness import Randomness
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.protection import refuse_dependent

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

# entries of the matrix from the cells of a table to the sums that are asked for
_LARGEST = 50_000_000


@dataclass(frozen=True)
class CrossedTable:
    """A measured table summed to rows × columns × strata, with its exact margins in every stratum.

    Parameters
    ----------
    rows, columns, strata
        The features of the test.
    measured
        The published table, with the law of its noise.
    shape
        Numbers of rows, columns and combinations of strata.
    row_totals, column_totals
        The exact margins, one column a stratum; 0 where they are noisy.
    notes
        What a reader must know.
    """

    rows: str
    columns: str
    strata: tuple[str, ...]
    measured: Measured = field(repr=False)
    shape: tuple[int, int, int]
    row_totals: Counts = field(repr=False)
    column_totals: Counts = field(repr=False)
    notes: tuple[str, ...] = ()

    @cached_property
    def codes(self) -> NDArray[np.intp]:
        """For each cell of the published table the flat number of its cell in `shape`."""
        names = (self.rows, self.columns, *self.strata)
        codes, _ = level_codes(self.measured.schema, names)
        return codes

    @cached_property
    def estimate(self) -> Floats:
        """The noisy counts in `shape`."""
        # Features that the test does not name are summed.
        counts = self.measured.estimate.ravel()
        flat = np.bincount(self.codes, weights=counts, minlength=math.prod(self.shape))
        return np.asarray(flat.reshape(self.shape), dtype=np.float64)

    def pull_weights(self, weights: Floats) -> Floats:
        """Weights on the cells of the published table, from weights on the cells of `shape`.

        The first axis counts the weighted sums.
        """
        self.check_size(len(weights))
        flat = weights.reshape(len(weights), -1)
        return flat[:, self.codes].reshape(len(weights), *self.measured.schema.shape)

    def check_size(self, sums: int) -> None:
        """Refuse more weighted sums of cells than memory holds."""
        if sums * self.codes.size > _LARGEST:
            raise Refused("this table has too many cells for a simulation: test a coarser one")

    def noise_variances(self, weights: Floats) -> Floats:
        """Variances of the noise of weighted sums of the cells of `shape`."""
        return self.measured.errors(self.pull_weights(weights)) ** 2

    def noise_law(self, weights: Floats) -> Callable[[int, Randomness], Floats]:
        """How the noise of weighted sums of the cells of `shape` is drawn, one row a draw."""
        return self.measured.weigh_noise(self.pull_weights(weights)).draw


def crossed_table(
    release: "ReleaseValue",
    rows: str,
    columns: str,
    strata: Iterable[str],
    table: str | None,
) -> CrossedTable:
    """Find the table that has the features of a test; totals that are not exact are 0 in what is
    returned.
    """
    strata = tuple(strata)
    names = (rows, columns, *strata)
    measured = measured_table(release, names, table)
    terms = " * ".join(names)
    simpler = " + ".join(" * ".join((side, *strata)) for side in (rows, columns))
    instead = f"semidp model RELEASE '~ {terms}' --against '~ {simpler}'"
    refuse_dependent(clustering(release, measured), instead)
    public = select_public(release, measured)
    if len({measured.schema.axis(name) for name in names}) < len(names):
        raise InputError("rows, columns and strata must be different features, each named once")
    exact = {side: public.publishes(Margin(side, *strata)) for side in (rows, columns)}
    if measured.schema.possible is not None:
        raise Refused(
            "with impossible cells (structural zeros) independence has no meaning here: test a part"
            " without"
        )
    # All combinations of strata are one axis.
    _, sizes = level_codes(measured.schema, names)
    shape = (sizes[0], sizes[1], math.prod(sizes[2:]))
    totals = []
    for side, levels in zip((rows, columns), sizes[:2], strict=True):
        flat = np.zeros(levels * shape[2], dtype=np.int64)
        if exact[side]:
            flat = exact_totals(public, (side, *strata))
        totals.append(flat.reshape(levels, -1))
    notes = _unused_totals(public, rows, columns, strata)
    return CrossedTable(rows, columns, strata, measured, shape, totals[0], totals[1], notes)


def exact_totals(public: Dataspace, names: Sequence[str]) -> Counts:
    """The exact totals of some features, flat, in their order."""
    total = public.value(Margin(*names))
    codes, sizes = level_codes(total.schema, names)
    flat = np.zeros(math.prod(sizes), dtype=np.int64)
    np.add.at(flat, codes, total.counts.ravel())
    return flat


def _unused_totals(
    public: Dataspace, rows: str, columns: str, strata: tuple[str, ...]
) -> tuple[str, ...]:
    """Note on the exact totals of rows or columns that the test does not condition on."""
    used = ({rows, *strata}, {columns, *strata})
    unused = []
    for margin in public.margins:
        names = {*margin.names}
        if names & {rows, columns} and not any(names <= side for side in used):
            unused.append(str(margin))
    if not unused:
        return ()
    return (f"The test does not condition on further exact totals: {', '.join(unused)}.",)
