"""Designs of regressions: columns from features, interactions and scores, and X'X from published
counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.exact import Number, exact
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.moments import Column, PublicDesign, label_cells
from semidp.promise.spaces.dataspace import Dataspace, Margin

INTERCEPT = "intercept"
"""The name of the column of ones."""


class Coding(StrEnum):
    """How a feature enters a design: its first level is the reference in either coding.

    ``treatment`` has a column for every other level, 1 there and 0 elsewhere; ``effects`` has the
    same columns with -1 at the reference, so two levels become -1 and 1.
    """

    treatment = "treatment"
    effects = "effects"


@frozen
class Design(PublicDesign):
    """The columns of a regression on categorical features.

    Parameters
    ----------
    schema
        The schema that the features belong to.
    columns
        The columns; `Design.from_schema` builds the usual ones.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("arm", ["control", "drug"]), Feature("sex", ["f", "m"])])
    >>> design = Design.from_schema(
    ...     schema, ["arm", "sex"], interactions=[("arm", "sex")], coding=Coding.effects
    ... )
    >>> design.names
    ('intercept', 'arm=drug', 'sex=m', 'arm=drug:sex=m')
    >>> design.rows().tolist()
    [[1, -1, -1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, 1, 1, 1]]
    """

    @classmethod
    def from_schema(
        cls,
        schema: Schema,
        factors: Sequence[str] = (),
        *,
        interactions: Iterable[Sequence[str]] = (),
        scores: Mapping[str, Sequence[Number]] | None = None,
        coding: Coding = Coding.treatment,
        intercept: bool = True,
    ) -> "Design":
        """Return the design with an intercept, the given features and their interactions.

        The noise of every coefficient grows with the longest row, so keep scores between -1 and 1.

        Parameters
        ----------
        schema
            The schema that the features belong to.
        factors
            Features that enter by a column for each level but the first.
        interactions
            Sets of factors or scored features whose columns are multiplied.
        scores
            Features that enter as one number: the score of each of their levels.
        coding
            How factors are coded.
        intercept
            Whether the first column is 1 throughout.
        """
        numbers = dict(scores or {})
        both = [name for name in factors if name in numbers]
        if both:
            raise InputError(f"feature {both[0]!r} is both a factor and scored: choose one")
        parts = {name: _factor(schema, name, coding) for name in factors}
        for name, values in numbers.items():
            parts[name] = [_score_column(schema, name, values)]
        columns = [Column(INTERCEPT, (), (Fraction(1),))] if intercept else []
        columns += [column for part in parts.values() for column in part]
        for names in interactions:
            unknown = [name for name in names if name not in parts]
            if unknown or len(names) < 2:
                raise InputError(
                    "an interaction names two or more of the design's features: add their main"
                    " effects first"
                )
            product = parts[names[0]]
            for name in names[1:]:
                product = [_product(schema, one, other) for one in product for other in parts[name]]
            columns += product
        return cls(schema, tuple(columns))

    def gram(self, dataspace: Dataspace) -> NDArray[np.object_]:
        """Return ``multiplier² X'X`` from the published counts, in exact whole numbers; refuse a
        collinear design.

        >>> from semidp.promise.schema.features import Feature
        >>> from semidp.promise.schema.schema import Table
        >>> table = Table(Schema([Feature("arm", "cd")]), [5, 3])
        >>> Design.from_schema(table.schema, ["arm"]).gram(
        ...     Dataspace.from_table(table, [Margin("arm")])
        ... ).tolist()
        [[8, 3], [3, 3]]
        """
        self.check_public(dataspace)
        return _gram(self, dataspace)

    def moments(self, dataspace: Dataspace) -> NDArray[np.object_]:
        """Return ``multiplier² X'X`` of a design with public moments, in exact whole numbers."""
        size = len(self.columns)
        gram = np.zeros((size, size), dtype=object)
        for i, one in enumerate(self.columns):
            for j, other in enumerate(self.columns[: i + 1]):
                names = _joint_names(self.schema, one, other)
                counts = np.array(dataspace.n)
                if names:
                    counts = dataspace.value(Margin(*names)).counts
                product = self._spread_column(one, names) * self._spread_column(other, names)
                moment = int(np.sum(product * counts.astype(object).ravel()))
                gram[i, j] = moment
                gram[j, i] = moment
        return gram

    def check_rank(self, gram: NDArray[np.object_]) -> None:
        """Refuse columns that are combinations of earlier ones on the records that exist. The
        elimination is exact.
        """
        from flint import fmpq_mat, fmpz_mat

        # Floats cannot tell a tiny pivot from 0, and a collinear design would turn noise into huge
        # coefficients.
        reduced, rank = fmpq_mat(fmpz_mat(gram.tolist())).rref()
        leading = {_first_nonzero(row) for row in reduced.tolist()[:rank]}
        for k, name in enumerate(self.names):
            if k not in leading:
                raise Refused(
                    f"the design is collinear: on the published counts column {name!r} is a"
                    " combination of the columns before it (a level without records, say): leave"
                    " it out"
                )


def _first_nonzero(row: Sequence[object]) -> int:
    """Return the position of the first number of a row that is not zero."""
    return next(position for position, value in enumerate(row) if value)


@lru_cache(maxsize=32)
def _gram(design: Design, dataspace: Dataspace) -> NDArray[np.object_]:
    """Return X'X and check its rank, once for a design and what is published: exact elimination
    takes its time.
    """
    gram = design.moments(dataspace)
    design.check_rank(gram)
    # All callers share the cached array: a change by one would reach the others.
    gram.setflags(write=False)
    return gram


def _factor(schema: Schema, name: str, coding: Coding) -> list[Column]:
    levels = schema.restrict([name]).features[0].levels
    low = Fraction(-1 if coding is Coding.effects else 0)
    columns = []
    for code, level in enumerate(levels):
        if code == 0:
            continue  # the first level is the one that the others are compared with
        values = [Fraction(0)] * len(levels)
        values[0] = low
        values[code] = Fraction(1)
        columns.append(Column(f"{name}={level}", (name,), tuple(values)))
    return columns


def _score_column(schema: Schema, name: str, scores: Sequence[Number]) -> Column:
    levels = schema.restrict([name]).features[0].levels
    if len(scores) != len(levels):
        raise InputError(f"feature {name!r} needs a score for each level ({len(levels)} in all)")
    meaning = f"a score of {name!r}"
    return Column(name, (name,), tuple(exact(score, meaning) for score in scores))


def _joint_names(schema: Schema, one: Column, other: Column) -> tuple[str, ...]:
    """The features of two columns together, in the order of the schema."""
    both = {*one.features, *other.features}
    return tuple(name for name in schema.names if name in both)


def _product(schema: Schema, one: Column, other: Column) -> Column:
    names = _joint_names(schema, one, other)
    parts = []
    for part in (one, other):
        values = np.array(part.values, dtype=object)
        parts.append(values[label_cells(schema, part.features, names)])
    product = parts[0] * parts[1]
    return Column(f"{one.name}:{other.name}", names, tuple(product))
