"""Reading the noisy measurement files of one state into `Measurements`; their format is in
`semidp.inference.census.layout`.

Queries are told by their shape, not by their name. DuckDB reads the files; nothing else of the
folder is opened.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, frozen
from numpy.typing import NDArray

from semidp.errors import DataError, InputError
from semidp.inference.census.layout import (
    EXACT,
    INSTITUTIONS,
    LEVELS,
    MEASURED,
    MINOR,
    NATION,
    NURSING,
    PERSONS,
    SIZES,
    TOTAL,
    UPPER_BOUND,
    block_geoid,
)
from semidp.publish.estimation.classes import Classes
from semidp.publish.estimation.measurements import CellSums, Measurements, Observed
from semidp.publish.estimation.places import Places

CLASSES = Classes(SIZES, plain=(2, 3))
"""Origin and race are only ever added up or kept; zeros depend on quarters and age."""
_PART = re.compile(r"State=([01])(\d\d)")
_COLUMNS = ("geocode", "query_name", "query_shape", "value", "variance")


@frozen(eq=False)
class StateFiles:
    """One state as its files tell it: what was measured, and the codes of its places.

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
    """Return the folder that holds the levels: the one given, or the persons' within it."""
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
        Folder of the files; see `semidp.inference.census.layout`.
    state
        Two digits, such as 15 for Hawaii.
    total
        Exact population of the state, where the files do not say it.
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
    """Whether a folder holds what was measured of the nation."""
    return bool(_files_below(folder / f"{NATION}.parquet" / MEASURED))


def read_nation(folder: str | Path) -> tuple[Observed, ...]:
    """Return what was measured of the nation, and its exact totals, at depth 0 above all states."""
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
