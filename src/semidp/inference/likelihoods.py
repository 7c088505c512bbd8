"""The likelihood of a table from all measurements of a release, or of several.

Measurements with budgets of their own have independent noise, so likelihoods multiply. A
measurement of a table with other features is informative about the common features. `markov`
determines which tables are possible, and how chains move through them.
"""

import math
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.cell_bounds import CellBounds
from semidp.inference.combined.several_releases import measured_counts
from semidp.inference.lattice_chains import EntryLikelihood, NoiseLaw
from semidp.inference.measured import level_codes
from semidp.promise.mechanisms.additive import (
    DiscreteGaussianMechanism,
    LaplaceMechanism,
    LatticeGaussianMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism
from semidp.promise.noise.distributions import DiscreteGaussian
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.noise_laws import joined_laws
from semidp.publish.residual_mechanism import ResidualMechanism

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

_FAR = 12.0  # standard deviations up to which a law is summed up
_DIRECT = 20_000  # numbers up to which laws are convolved without a Fourier transform
_DIGITS = 1e-13  # what a Fourier transform leaves of a probability, in units of the largest


@frozen(slots=False)
class SummedNoise:
    """The distribution of a sum of independent integers with the same distribution, such as summed
    cells.

    Parameters
    ----------
    law
        The law of one number, symmetric.
    count
        How many are added.

    Examples
    --------
    >>> law = SummedNoise(DiscreteGaussian(4), 3)
    >>> round(law.variance, 6), round(float(law.pmf(np.arange(2))[1]), 6)
    (12.0, 0.110465)
    """

    law: NoiseLaw
    count: int

    @property
    def variance(self) -> float:
        """The variance of the sum."""
        return self.count * self.law.variance

    @cached_property
    def _probabilities(self) -> Floats:
        """Probabilities of 0, 1, 2 …, by convolution; 0 if they are too small to be exact."""
        reach = math.ceil(_FAR * math.sqrt(self.variance)) + 20
        sizes = np.arange(reach)
        half = self.law.pmf(sizes)
        one = np.concatenate([half[:0:-1], half])
        total = np.ones(1)
        for _ in range(self.count):
            longer = _convolve(total, one)
            # Further out than that nothing is asked for: the middle is kept.
            excess = max(0, (len(longer) - len(one)) // 2)
            total = longer[excess : len(longer) - excess]
        return np.asarray(total[len(total) // 2 :])

    def pmf(self, sizes: NDArray[Any]) -> Floats:
        """Probabilities of some whole numbers; 0 beyond twelve standard deviations."""
        places = np.abs(np.asarray(sizes, dtype=np.int64))
        last = len(self._probabilities) - 1
        return np.where(places <= last, self._probabilities[np.minimum(places, last)], 0.0)


def _convolve(one: Floats, other: Floats) -> Floats:
    """The law of a sum: directly, with all digits, or for long lists by Fourier transform."""
    if min(len(one), len(other)) <= _DIRECT:
        return np.convolve(one, other)
    product = np.asarray(scipy.signal.fftconvolve(one, other))
    return np.where(product > _DIGITS * product.max(), product, 0.0)


@frozen(eq=False)
class NoisyCounts:
    """The measurement of one mechanism, as drawn.

    Parameters
    ----------
    name
        The name of the result.
    mechanism
        The noise.
    noisy
        The measurement, flat: cells of a table, or residuals of several.
    schema
        The features of the cells; of residuals those of a record.
    possible
        The cells that may hold records, flat: others are not informative. Not used for residuals.
    """

    name: str
    mechanism: Mechanism
    noisy: Counts = field(repr=False)
    schema: Schema = field(repr=False)
    possible: Flags = field(repr=False)

    def concerns(self, table: Schema, public: Dataspace) -> bool:
        """Whether it is informative about a table beyond the exact totals."""
        if isinstance(self.mechanism, ResidualMechanism):
            return any(self._measured_views(table))
        names = shared_names(self.schema, table)
        return bool(names) and not public.publishes(Margin(*names))

    def usable(self, table: Schema) -> bool:
        """Whether the law of its noise, summed to the features of a table, is known number by
        number.
        """
        if isinstance(self.mechanism, CellByCell | ResidualMechanism):
            return True
        lattice = isinstance(self.mechanism, LatticeGaussianMechanism)
        return lattice and {*self.schema.names} <= {*table.names}

    def entries(self, table: Schema) -> EntryLikelihood:
        """The measured numbers about a table, as sums of cells, each with its noise
        distribution.
        """
        mechanism = self.mechanism
        if isinstance(mechanism, ResidualMechanism):
            return self._residual_entries(table, mechanism)
        if not self.usable(table):
            raise Refused(unlike(mechanism))
        if isinstance(mechanism, LatticeGaussianMechanism):
            # On tables with its totals the law of the lattice is that of a discrete Gaussian.
            return self._cell_entries(table, DiscreteGaussian(mechanism.sigma2))
        assert isinstance(
            mechanism, RoundedGaussianMechanism | DiscreteGaussianMechanism | LaplaceMechanism
        )
        return self._cell_entries(table, mechanism.sampler)

    def _cell_entries(self, table: Schema, law: NoiseLaw) -> EntryLikelihood:
        """Measured cells added up to the features that the table has too."""
        names = shared_names(self.schema, table)
        codes, sizes = level_codes(self.schema, names)
        groups = math.prod(sizes)
        added = np.bincount(codes[self.possible], minlength=groups)
        noisy = np.zeros(groups, dtype=np.int64)
        # Cells that hold nobody say nothing of the others.
        np.add.at(noisy, codes[self.possible], self.noisy[self.possible])
        table_codes, _ = level_codes(table, names)
        used = np.flatnonzero(added)
        cells = np.flatnonzero(added[table_codes])
        numbers = np.searchsorted(used, table_codes[cells])
        shape = (len(used), table_codes.size)
        inside = scipy.sparse.csr_array((np.ones_like(cells), (numbers, cells)), shape)
        counts, which = np.unique(added[used], return_inverse=True)
        laws = [law if count == 1 else SummedNoise(law, count) for count in counts.tolist()]
        return EntryLikelihood(inside, noisy[used], tuple(laws), which)

    def _measured_views(self, table: Schema) -> list[View]:
        """Measured residuals that are functions of a table."""
        assert isinstance(self.mechanism, ResidualMechanism)
        names = {*table.names}
        return [
            view for view in self.mechanism.space.parts if {*_deepest(self.schema, view)} <= names
        ]

    def _residual_entries(self, table: Schema, mechanism: ResidualMechanism) -> EntryLikelihood:
        space = mechanism.space
        laws, which = mechanism.samplers
        rows, places = [], []
        for view in self._measured_views(table):
            codes, _ = level_codes(table, _deepest(self.schema, view))
            rows.append(_residual_matrix(mechanism, view)[:, codes])
            part = space.parts[view]
            places.append(np.arange(part.start, part.stop))
        entries = np.concatenate(places)
        matrix = np.concatenate(rows)
        return EntryLikelihood(matrix, self.noisy[entries], tuple(laws), which[entries])


def _residual_matrix(mechanism: ResidualMechanism, view: View) -> Counts:
    """The map from the flat table at a view to its measured residual."""
    space = mechanism.space
    shape = space.schema.grid.compute_margin_shape(view)
    columns = []
    for cell in range(math.prod(shape)):
        unit = np.zeros(math.prod(shape), dtype=np.int64)
        unit[cell] = 1
        # Levels that hold nobody were no part of what was measured.
        cut = space.trim(unit.reshape(shape), view).astype(np.int64)
        residual = space.residuals.compute_integer_residual(view, cut)
        columns.append(residual.ravel())
    return np.stack(columns, axis=1)


def _deepest(schema: Schema, view: View) -> list[str]:
    """Name of each feature of a view, at the depth that the view gives it."""
    return [schema.features[axis].names[view[axis] - 1] for axis in list_axes(view)]


def shared_names(one: Schema, other: Schema) -> list[str]:
    """Features that two tables have in common, each by its deepest common name.

    >>> from semidp.promise.schema.features import Feature
    >>> county = Feature.from_paths(("state", "county"), [("a", "x"), ("a", "y"), ("b", "z")])
    >>> sex = Feature("sex", "fm")
    >>> shared_names(Schema([county, sex]), Schema([sex, county.cut_to_depth(1)]))
    ['sex', 'state']
    """
    names = []
    for feature in other.features:
        common = [name for name in feature.names if name in one.names]
        names += common[-1:]
    return names


def unlike(mechanism: Mechanism) -> str:
    """Say for which noise a likelihood is available."""
    return (
        "the posterior is computed for Gaussian, lattice and Laplace noise in cells and for noise"
        f" on residuals, not for {mechanism.name} noise"
    )


def noisy_counts(release: "ReleaseValue") -> list[NoisyCounts]:
    """All measurements of counts, in a release or in those that it combines."""
    sources = release.sources or (release,)
    every = []
    for source in sources:
        for request, result, mechanism in measured_counts(source, "posteriors"):
            public = source.scope.dataspace
            noisy = np.asarray(result.whole_noisy(source.partition), dtype=np.int64).ravel()
            if isinstance(mechanism, ResidualMechanism):
                schema, possible = public.schema, np.ones(0, dtype=bool)
            else:
                schema = public.schema.restrict(request.features)
                possible = possible_cells(public, schema)
            every.append(NoisyCounts(result.name, mechanism, noisy, schema, possible))
    return every


def possible_cells(public: Dataspace, schema: Schema) -> Flags:
    """Cells of a table that may hold records under the exact totals and zeros, flat."""
    possible = CellBounds.from_dataspace(public, schema.names).upper.ravel() > 0
    if schema.possible is not None:
        possible &= schema.possible.ravel()
    return np.asarray(possible)


def join_likelihoods(parts: Iterable[EntryLikelihood]) -> EntryLikelihood:
    """The product of likelihoods of independent measurements."""
    every = list(parts)
    matrix = scipy.sparse.vstack([one.weights for one in every])
    noisy = np.concatenate([one.noisy for one in every])
    laws, which = joined_laws((one.laws, one.which) for one in every)
    return EntryLikelihood(matrix, noisy, tuple(laws), which)
