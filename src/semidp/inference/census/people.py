"""Which people are counted: the groups of the redistricting file, as weights of the 2,016 cells."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from semidp.inference.census.layout import ALONE, INSTITUTIONS, SIZES

Floats = NDArray[np.float64]
ADULT, HISPANIC = 1, 1


def groups() -> dict[str, Floats]:
    """Weights of cells for every group of people: everybody and adults by origin and race, and
    kinds of quarters.

    Races are those of people who are not Hispanic, as in the tables of the redistricting file.

    >>> names = list(groups())
    >>> len(names), names[:3], names[-1]
    (21, ['all', 'hispanic', 'white'], 'other group quarters')
    >>> float(groups()["adults, asian"].sum())
    8.0
    """
    weights: dict[str, Floats] = {}
    for prefix, ages in (("", slice(None)), ("adults, ", slice(ADULT, None))):
        for name, chosen in _by_origin_and_race():
            cells = np.zeros(SIZES)
            cells[:, ages] = chosen
            weights[f"{prefix}{name}"] = cells
    for number, name in enumerate(("households", "institutions", "other group quarters")):
        cells = np.zeros(SIZES)
        cells[np.asarray(INSTITUTIONS) == number] = 1
        weights[name] = cells
    return weights


def _by_origin_and_race() -> Iterator[tuple[str, Floats]]:
    """Groups by Hispanic origin and race: weights of shape (origins, races)."""
    shape = SIZES[2:]
    yield "all", np.ones(shape)
    # Hispanics may be of any race.
    hispanic = np.zeros(shape)
    hispanic[HISPANIC] = 1
    yield "hispanic", hispanic
    for race, name in enumerate(ALONE):
        alone = np.zeros(shape)
        alone[0, race] = 1
        yield name, alone
    several = np.zeros(shape)
    several[0, len(ALONE) :] = 1
    yield "two or more races", several
