"""The noisy measurement files of the 2020 Census (P.L. 94-171, persons): their format, reading one
state into `Measurements`, named areas, and the groups of people.

Queries are recognized by their shape, not by their name. DuckDB reads the files; nothing else in
the folder is opened. Areas are districts made of blocks, tracts or counties, read from a file of
codes.

A folder holds, for each level of geography, noisy measurements and exact numbers::

    {LEVEL}.parquet/DPQuery/State={PART}/*.parquet      noisy measurements
    {LEVEL}.parquet/Constraint/State={PART}/*.parquet   exact totals and bounds

`LEVEL` is US, State, County, Tract, Block_Group or Block. `PART` is 0SS for the state SS and 1SS
for the lands of its tribes, which have a tree of their own. Level US has one place, the nation, in
any folder below ``US.parquet/DPQuery``. Each row has

- `geocode`: text; the code of a place starts with the code of the place it lies in. The last 16
  characters of the code of a block are its tabulation code: state 2, county 3, tract 6, block group
  1, block 4;
- `query_name`: `detailed_dpq`, `votingage * hispanic_dpq` and so on; in constraints
  `hhgq_total_ub_con`, `hhgq_total_lb_con`, `nurse_nva_0_con`, `total_con`;
- `query_shape`: the number of values along quarters, age, Hispanic origin and race: all levels (8,
  2, 2, 63), 1 where the attribute is added up, or 3 for quarters in households, institutions and
  other group quarters;
- `value`: the values, in that order, the last attribute running fastest; `variance`: of each, 0 if
  exact.

Noise is discrete Gaussian with ``σ² = 1/ρ`` for a query with share ρ of the budget: a person
who changes moves two of its counts by one, so ``ρ = 2/(2σ²)``.
"""

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from semidp.errors import DataError, InputError
from semidp.inference.area_sums import read_area_rows
from semidp.inference.estimation.estimates import Share
from semidp.inference.estimation.measurements import (
    CellSums,
    Classes,
    Measurements,
    Observed,
    Places,
)

QUARTERS = (
    "household",
    "correctional",
    "juvenile",
    "nursing",
    "other institution",
    "college",
    "military",
    "other",
)
AGES = ("under 18", "18 and over")
ORIGINS = ("not Hispanic", "Hispanic")
ALONE = ("white", "black", "native", "asian", "pacific", "other")


def _races() -> tuple[str, ...]:
    names = []
    for several in range(1, len(ALONE) + 1):
        for combination in itertools.combinations(ALONE, several):
            names.append("+".join(combination))
    return tuple(names)


RACES = _races()
"""The six races alone, then every combination, the shorter first."""

SIZES = (len(QUARTERS), len(AGES), len(ORIGINS), len(RACES))
INSTITUTIONS = (0, 1, 1, 1, 1, 2, 2, 2)
"""Group of each kind of quarters in a query of shape 3: households, institutions, other group
quarters."""
NURSING, MINOR = 3, 0
"""No minor lives in a nursing home: that cell is impossible everywhere."""

LEVELS = ("State", "County", "Tract", "Block_Group", "Block")
NATION = "US"
STATES = tuple(f"{code:02}" for code in range(1, 57) if code not in (3, 7, 14, 43, 52))
"""The fifty states and the District of Columbia, whose sum is the nation."""
MEASURED, EXACT = "DPQuery", "Constraint"
UPPER_BOUND, TOTAL = "hhgq_total_ub_con", "total_con"
PERSONS = "US_Person_PL_PROD"
"""The folder of persons, if the files were unpacked with those of housing units."""


def block_geoid(geocode: str) -> str:
    """Code of a block in other files of the Census, of 15 digits, from its geocode.

    The tabulation code has the block group twice: once for itself, and as the first digit of the
    block.

    >>> block_geoid("0150010201001" + "1500102010011000")
    '150010201001000'
    """
    tabulation = geocode[-16:]
    return tabulation[:11] + tabulation[12:]


CLASSES = Classes(SIZES, plain=(2, 3))
"""Origin and race are only ever added up or kept; zeros depend on quarters and age."""
_PART = re.compile(r"State=([01])(\d\d)")
_COLUMNS = ("geocode", "query_name", "query_shape", "value", "variance")


@frozen(eq=False)
class StateFiles:
    """The files of one state: the measurements, and the codes of its places.

    Depth 0 is the state itself, depth 1 its parts (level State of the files), and so on down to
    blocks.
    """

    code: str
    measurements: Measurements
    codes: tuple[NDArray[np.str_], ...]

    def blocks(self) -> NDArray[np.str_]:
        """Codes of 15 digits of all blocks."""
        codes = self.codes[-1].tolist()
        return np.array([block_geoid(code) for code in codes])


def persons_folder(folder: str | Path) -> Path:
    """Return the folder that holds the levels: the given one, or the persons' folder within it."""
    for candidate in (Path(folder), Path(folder) / PERSONS):
        if (candidate / "Block.parquet" / MEASURED).is_dir():
            return candidate
    raise InputError(
        f"{folder} holds no noisy measurement files: there is no folder Block.parquet/{MEASURED}"
        " in it"
    )


def list_states(folder: Path) -> dict[str, tuple[str, ...]]:
    """States in a folder, by their two digits, each with its parts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in ("State=015", "State=002", "State=102"):
    ...         (Path(folder) / "Block.parquet" / "DPQuery" / part).mkdir(parents=True)
    ...     list_states(Path(folder))
    {'02': ('002', '102'), '15': ('015',)}
    """
    parts: dict[str, list[str]] = {}
    for path in (folder / "Block.parquet" / MEASURED).iterdir():
        named = _PART.fullmatch(path.name)
        if named and path.is_dir():
            code = named[2]
            parts.setdefault(code, []).append(named[1] + code)
    return {code: tuple(sorted(parts[code])) for code in sorted(parts)}


def read_state(folder: str | Path, state: str, total: int | None = None) -> StateFiles:
    """Return the measurements of one state.

    Parameters
    ----------
    folder
        Folder of the files; see `semidp.inference.noisy_files`.
    state
        Two digits, such as 15 for Hawaii.
    total
        Exact population of the state, if the files do not have it.
    """
    root = persons_folder(folder)
    parts = list_states(root).get(state)
    if parts is None:
        raise InputError(
            f"the files hold no state {state}; they hold {', '.join(list_states(root))}"
        )
    levels: list[_Level] = []
    with _reader() as connection:
        for name in LEVELS:
            levels.append(_Level.read(connection, root, name, parts))
    codes = (np.array([state]), *(level.codes for level in levels))
    above = [[""], *(level.codes.tolist() for level in levels)]
    # The empty code starts every other: the state itself, above its parts.
    places = Places.from_codes(above)
    observed: list[Observed] = []
    possible = {}
    for depth, level in enumerate(levels, 1):
        observed += level.build_observed(depth)
        possible[depth] = level.possible
    if total is not None:
        everybody = CellSums(("summed",) * len(SIZES))
        observed.append(Observed(everybody, 0, [[total]], 0.0))
    if not observed:
        raise DataError(f"the files of state {state} hold no measurement")
    return StateFiles(state, Measurements(places, SIZES, observed, possible), codes)


def has_nation(folder: Path) -> bool:
    """Whether a folder holds measurements of the nation."""
    return bool(_files_below(folder / f"{NATION}.parquet" / MEASURED))


def read_nation(folder: str | Path) -> tuple[Observed, ...]:
    """Return the measurements of the nation and its exact totals, at depth 0 above all states."""
    root = persons_folder(folder)
    level = root / f"{NATION}.parquet"
    measured = _files_below(level / MEASURED)
    exact = _files_below(level / EXACT)
    if not measured:
        raise InputError(f"the folder holds no file of level {NATION}")
    with _reader() as connection:
        nation = _Level.of_files(connection, measured, exact)
    if len(nation.codes) != 1:
        raise DataError(f"level {NATION} has one place, the nation, and not {len(nation.codes)}")
    return tuple(nation.build_observed(0))


def _files_below(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*.parquet"))


@frozen(eq=False)
class _Level:
    """What the files of one level hold: queries by name, with one row for each place."""

    codes: NDArray[np.str_]
    queries: Mapping[str, "_Query"]
    possible: NDArray[np.bool_]

    @classmethod
    def read(cls, connection: Any, root: Path, level: str, parts: Sequence[str]) -> "_Level":
        measured = _files(root, level, MEASURED, parts)
        exact = _files(root, level, EXACT, parts)
        if not measured and not exact:
            raise DataError(f"there is no file of level {level} for the state {parts[0][1:]}")
        return cls.of_files(connection, measured, exact)

    @classmethod
    def of_files(cls, connection: Any, measured: list[str], exact: list[str]) -> "_Level":
        codes = _codes(connection, [*measured, *exact])
        queries = {}
        for name, shape in _queries(connection, measured, "TRUE"):
            queries[name] = _Query.empty(name, shape, len(codes))
        for name, shape in _queries(connection, exact, f"query_name = '{TOTAL}'"):
            queries[name] = _Query.empty(name, shape, len(codes))
        for file in (*measured, *exact):
            _fill(connection, file, codes, queries)
        return cls(codes, queries, _possible(connection, exact, codes))

    def build_observed(self, depth: int) -> Iterator[Observed]:
        for query in self.queries.values():
            yield Observed(query.sums, depth, query.values, query.variances)


@define(eq=False)
class _Query:
    """One query of a level: values and variances at every place, the latter infinite where it was
    not measured.
    """

    sums: CellSums
    values: NDArray[Any]
    variances: NDArray[np.float64]

    @classmethod
    def empty(cls, name: str, shape: tuple[int, ...], places: int) -> "_Query":
        # half the memory; widened when a file holds larger numbers
        values = np.zeros((places, math.prod(shape)), dtype=np.int32)
        return cls(_cell_sums(name, shape), values, np.full(places, np.inf))


@contextlib.contextmanager
def _reader() -> Iterator[Any]:
    import duckdb

    connection = duckdb.connect()
    try:
        # The order of rows is the order of their values once they are unpacked.
        connection.execute("SET preserve_insertion_order = true")
        yield connection
    except duckdb.Error:
        columns = ", ".join(_COLUMNS)
        raise DataError(
            f"a noisy measurement file cannot be read: it is Parquet with the columns {columns}"
        ) from None
    finally:
        connection.close()


def _files(root: Path, level: str, kind: str, parts: Sequence[str]) -> list[str]:
    paths = []
    for part in parts:
        folder = root / f"{level}.parquet" / kind / f"State={part}"
        present = [str(path) for path in folder.glob("*.parquet")]
        paths += sorted(present)
    return paths


def _codes(connection: Any, files: list[str]) -> NDArray[np.str_]:
    query = "SELECT DISTINCT geocode FROM read_parquet(?) ORDER BY geocode"
    rows = connection.execute(query, [files]).fetchnumpy()["geocode"]
    return np.asarray(rows.tolist(), dtype=np.str_)


def _queries(
    connection: Any, files: list[str], condition: str
) -> list[tuple[str, tuple[int, ...]]]:
    if not files:
        return []
    text = (
        f"SELECT DISTINCT query_name, query_shape FROM read_parquet(?) WHERE {condition} ORDER"
        " BY ALL"
    )
    rows = connection.execute(text, [files]).fetchall()
    names = [name for name, _ in rows]
    if len(names) != len(set(names)):
        raise DataError("a query of the noisy measurement files has two shapes")
    return [(name, tuple(map(int, shape))) for name, shape in rows]


def _fill(
    connection: Any, file: str, codes: NDArray[np.str_], queries: Mapping[str, _Query]
) -> None:
    """Read one file and put what it holds in its place. It is read once, whatever the order of its
    rows.
    """
    light = "SELECT geocode, query_name, variance, len(value) AS length FROM read_parquet(?)"
    rows = connection.execute(light, [file]).fetchnumpy()
    numbers = connection.execute(
        "SELECT unnest(value) AS value FROM read_parquet(?)", [file]
    ).fetchnumpy()["value"]
    every_column = (numbers, *rows.values())
    if any(np.ma.is_masked(column) for column in every_column):
        raise DataError(
            "a noisy measurement file lacks a geocode, a name, a value or a variance somewhere"
        )
    geocodes = np.asarray(rows["geocode"].tolist(), dtype=np.str_)
    # codes are sorted, and hold those of every file
    places = np.searchsorted(codes, geocodes)
    names = np.asarray(rows["query_name"].tolist(), dtype=np.str_)
    ends = np.cumsum(rows["length"])
    for name, query in queries.items():
        chosen = np.flatnonzero(names == name)
        if not len(chosen):
            continue
        width = query.values.shape[1]
        if (rows["length"][chosen] != width).any():
            raise DataError(f"a row of the query {name} has not as many values as its shape says")
        at = places[chosen]
        repeated = len(np.unique(at)) < len(at)
        read_before = np.isfinite(query.variances[at])
        if repeated or read_before.any():
            raise DataError(f"a place has the query {name} twice")
        if not np.can_cast(numbers.dtype, query.values.dtype):
            wider = np.result_type(query.values.dtype, numbers.dtype)
            query.values = query.values.astype(wider)
        starts = ends[chosen] - width
        if (np.diff(starts) == width).all():
            # Rows of a query usually follow each other.
            following = numbers[starts[0] : ends[chosen[-1]]]
            query.values[at] = following.reshape(-1, width)
        else:
            entries = starts[:, None] + np.arange(width)
            query.values[at] = numbers[entries]
        query.variances[at] = rows["variance"][chosen]


def _cell_sums(name: str, shape: tuple[int, ...]) -> CellSums:
    treatments: list[str | tuple[int, ...]] = []
    for place, (length, size) in enumerate(zip(shape, SIZES, strict=False)):
        if length == size:
            treatments.append("each")
        elif length == 1:
            treatments.append("summed")
        elif place == 0 and length == 3:
            treatments.append(INSTITUTIONS)
        else:
            raise DataError(
                f"the query {name} has the shape {shape}, which is none of the persons file"
            )
    if len(shape) != len(SIZES):
        raise DataError(
            f"the query {name} has the shape {shape}, which is none of the persons file"
        )
    return CellSums(treatments)


def _possible(connection: Any, files: list[str], codes: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Cells that can be other than zero, by place: kinds of quarters that it has, and no minors in
    nursing homes.
    """
    quarters = np.ones((len(codes), SIZES[0]), dtype=bool)
    if files:
        chosen = f"FROM read_parquet(?) WHERE query_name = '{UPPER_BOUND}' ORDER BY geocode"
        rows = connection.execute(f"SELECT geocode {chosen}", [files]).fetchnumpy()["geocode"]
        text = f"SELECT unnest(value) AS value FROM (SELECT value {chosen})"
        columns = connection.execute(text, [files]).fetchnumpy()
        bounds = np.asarray(columns["value"])
        if len(bounds) != len(rows) * SIZES[0]:
            raise DataError(f"a row of {UPPER_BOUND} has not {SIZES[0]} values")
        at = np.searchsorted(codes, np.asarray(rows.tolist(), dtype=np.str_))
        quarters[at] = bounds.reshape(-1, SIZES[0]) > 0
    possible = np.repeat(quarters[:, :, None], SIZES[1], axis=2)
    possible[:, NURSING, MINOR] = False
    return possible[:, :, :, None, None]


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

    A code is a standard Census code (2 digits for a state, 5 for a county, 11 for a tract, 12
    for a block group, 15 for a block), the tabulation code of a block (16), or a geocode as in
    the files.

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
