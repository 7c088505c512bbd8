"""Readers of a private outcome: whether it is binary, and its histogram by groups.

What they return is confidential and leaves this package only through a mechanism.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError
from semidp.promise.schema.counts import refuse_cells
from semidp.promise.schema.features import TRUTH, Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema
from semidp.publish.sources.opening import Source


def check_binary(source: Source, column: str) -> None:
    """Refuse a column that holds anything but zeros and ones (or false and true): it has no
    proportion of ones.

    >>> from semidp import open_source
    >>> with open_source({"cured": np.array([0.0, 1.0, 0.5])}) as source:
    ...     check_binary(source, "cured")
    Traceback (most recent call last):
    semidp.errors.DataError: a proportion needs zeros and ones, and 'cured' holds other values: ...
    """
    # Missing values are let through here: reading the sums refuses them in its own words.
    for levels in (("0", "1"), TRUTH):
        try:
            source.counts(Schema([Feature(column, levels, null_level="missing")]))
            return
        except DataError as error:
            if f"feature {column!r}" not in str(error):  # a bad count column, say
                raise
    raise DataError(
        f"a proportion needs zeros and ones, and {column!r} holds other values: publish a mean with"
        " declared bounds, or make it a column of zeros and ones"
    )


def read_histogram(
    source: Source, schema: Schema, names: Sequence[str], outcome: Outcome
) -> NDArray[np.int64]:
    """Return the confidential counts between the edges of an outcome in each group, a row a
    group.
    """
    part = schema.restrict(names) if names else None
    whole = Schema(
        (
            *(part.features if part else ()),
            Feature(outcome.column, bins=(-math.inf, *outcome.edges, math.inf)),
        ),
        part.structural_zeros if part else (),
    )
    refuse_cells(whole.shape)
    return source.counts(whole).counts.reshape(-1, len(outcome.edges) + 1)
