"""Areas that somebody names: districts made of blocks, tracts or counties, read from a file of
codes.
"""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import DataError, InputError
from semidp.inference.area_sums import read_area_rows
from semidp.inference.census.reading import StateFiles
from semidp.publish.estimation.estimates import Share

_DIGITS = (2, 5, 11, 12, 15)
"""Lengths of the usual codes of states, counties, tracts, block groups and blocks."""
_TABULATION = 16
GEOCODE = "geocode"


Row = tuple[str, str, float]
"""Name of an area, code of a place in it, weight."""


def _rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(rows)


@frozen
class Areas:
    """Named areas, each a list of codes with weights.

    A code is a usual one of the Census (2 digits for a state, 5 for a county, 11 for a tract, 12
    for a block group, 15 for a block), the tabulation code of a block (16), or a geocode as it
    stands in the files.

    >>> areas = Areas([("north", "15001", 1.0), ("south", "15003", 0.5)])
    >>> areas.names, areas.states
    (('north', 'south'), ('15',))
    """

    rows: tuple[Row, ...] = field(converter=_rows)

    def __attrs_post_init__(self) -> None:
        if not self.rows:
            raise InputError(
                "no area is named: the file of areas has a row for each code of an area"
            )
        codes_of: dict[str, list[str]] = {}
        for name, code, _ in self.rows:
            codes_of.setdefault(name, []).append(_usual(code))
        for name, codes in codes_of.items():
            _refuse_overlap(name, codes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the areas, in the order of the file."""
        return tuple(dict.fromkeys(name for name, _, _ in self.rows))

    @property
    def states(self) -> tuple[str, ...]:
        """States that the areas lie in, by their two digits."""
        return tuple(sorted({_state(code) for _, code, _ in self.rows}))

    def shares(self, state: StateFiles) -> dict[int, Share]:
        """Places of one state that belong to the areas, by their depth in the tree of that
        state.
        """
        number_of = {name: number for number, name in enumerate(self.names)}
        blocks = state.blocks()
        # In order of their codes, the blocks of a county or a tract follow each other.
        order = np.argsort(blocks, kind="stable")
        ordered = blocks[order]
        collected: dict[int, list[tuple[NDArray[np.int64], int, float]]] = {}
        for name, code, weight in self.rows:
            if _state(code) == state.code:
                depth, nodes = _places(_usual(code), state, ordered, order)
                collected.setdefault(depth, []).append((nodes, number_of[name], weight))
        return {depth: _share(entries) for depth, entries in collected.items()}


def read_areas(path: str | Path) -> Areas:
    """Read a CSV file with the columns name, geocode and, if wanted, weight.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "districts.csv"
    ...     _ = file.write_text("name,geocode\\nnorth,15001\\n")
    ...     read_areas(file).rows
    (('north', '15001', 1.0),)
    """
    rows = []
    for row in read_area_rows(path, needed=(GEOCODE,)):
        rows.append((row.name, str(row.cells[GEOCODE]), row.weight))
    return Areas(rows)


def _usual(code: str) -> str:
    """Code of 15 digits for the tabulation code of a block; any other as it is."""
    if len(code) == _TABULATION and code.isdigit():
        return code[:11] + code[12:]
    return code


def _state(code: str) -> str:
    """Two digits of the state of a code."""
    usual = _usual(code)
    if not usual.isdigit() or len(usual) < 2:
        raise InputError(
            f"{code!r} is not a code of the Census: codes are digits, such as 15001020100 for a"
            " tract"
        )
    return usual[:2] if len(usual) in _DIGITS else usual[1:3]


def _refuse_overlap(name: str, codes: Sequence[str]) -> None:
    # In order, what starts with a code follows it.
    ordered = sorted(codes)
    for first, second in itertools.pairwise(ordered):
        if second.startswith(first):
            raise InputError(
                f"the area {name!r} names {second} twice: once by itself or as a part of {first}"
            )


def _places(
    code: str, state: StateFiles, ordered: NDArray[np.str_], order: NDArray[np.int64]
) -> tuple[int, NDArray[np.int64]]:
    """Depth and nodes of a code: the blocks whose usual code it starts, or one place of the
    files.
    """
    if code == state.code:
        return 0, np.array([0])
    if len(code) in _DIGITS:
        start, end = np.searchsorted(ordered, [code, code + ":"])  # ':' follows '9'
        if end > start:
            return len(state.codes) - 1, order[start:end]
    for depth, codes in enumerate(state.codes[1:], 1):
        at = int(np.searchsorted(codes, code))
        if at < len(codes) and codes[at] == code:
            return depth, np.array([at])
    raise DataError(f"the files of state {state.code} hold no place {code}")


def _share(entries: list[tuple[NDArray[np.int64], int, float]]) -> Share:
    nodes = np.concatenate([nodes for nodes, _, _ in entries])
    lengths = [len(nodes) for nodes, _, _ in entries]
    areas = np.repeat([area for _, area, _ in entries], lengths)
    weights = np.repeat([weight for _, _, weight in entries], lengths)
    return Share(nodes, areas, weights)
