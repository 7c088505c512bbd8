"""Simulated noisy measurement files, in the layout of the 2020 Census, from a table of blocks.

The blocks and their counts by age, Hispanic origin and seven race groups are real or given; how
people are spread over the 2,016 cells is invented by the rule of `people_of`, and the noise is
drawn from a seed. Nothing here is private.
"""

import csv
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from semidp.applications.census_studies import PERSONS, budget
from semidp.inference.noisy_files import EXACT, LEVELS, MEASURED, NATION, RACES, SIZES

GROUPS = ("hisp", "white", "black", "aian", "asian", "nhpi", "other", "two")
LENGTHS = {"State": 3, "County": 6, "Tract": 12, "Block_Group": 13}
SHAPES = {
    "total": (1, 1, 1, 1),
    "cenrace": (1, 1, 1, 63),
    "hispanic": (1, 1, 2, 1),
    "votingage": (1, 2, 1, 1),
    "hhinstlevels": (3, 1, 1, 1),
    "hhgq": (8, 1, 1, 1),
    "hispanic * cenrace": (1, 1, 2, 63),
    "votingage * cenrace": (1, 2, 1, 63),
    "votingage * hispanic": (1, 2, 2, 1),
    "votingage * hispanic * cenrace": (1, 2, 2, 63),
    "detailed": (8, 2, 2, 63),
}
SEVERAL = np.array([0.5 ** name.count("+") for name in RACES[6:]])
"""Weights of the 57 combinations of races: each further race halves them."""
HISPANIC = np.array([0.30, 0.04, 0.05, 0.03, 0.02, 0.30])
"""Parts of Hispanics of one race alone; the others are of several, by `SEVERAL`."""


def read_blocks(path: Path) -> tuple[list[str], np.ndarray]:
    """Codes of 15 digits of the blocks, and persons by age (minors, adults) and group: (blocks, 2,
    8).
    """
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows.sort(key=lambda row: row["GEOID20"])
    codes = [row["GEOID20"] for row in rows]
    persons = np.array([[int(row[f"pop_{group}"]) for group in GROUPS] for row in rows])
    adults = np.array([[int(row[f"vap_{group}"]) for group in GROUPS] for row in rows])
    return codes, np.stack([persons - adults, adults], axis=1)


def people_of(groups: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """People in 2,016 cells, and which quarters each block has: an invented rule.

    Hispanics are spread over the races by `HISPANIC` and `SEVERAL`, people of two or more races by
    `SEVERAL`. One block in thirty with at least 30 people has one kind of group quarters, where
    each resident lives with probability one half (nursing homes: adults alone). Seven in ten blocks
    without residents have no housing unit.
    """
    blocks = len(groups)
    cells = np.zeros((blocks, *SIZES), dtype=np.int32)
    several = SEVERAL / SEVERAL.sum()
    hispanic = np.concatenate([HISPANIC, (1 - HISPANIC.sum()) * several])
    for age in range(2):
        cells[:, 0, age, 1] = generator.multinomial(groups[:, age, 0], hispanic)
        cells[:, 0, age, 0, :6] = groups[:, age, 1:7]
        cells[:, 0, age, 0, 6:] = generator.multinomial(groups[:, age, 7], several)
    residents = groups.sum(axis=(1, 2))
    possible = np.zeros((blocks, SIZES[0]), dtype=bool)
    possible[:, 0] = (residents > 0) | (generator.random(blocks) < 0.3)
    housed = np.flatnonzero((residents >= 30) & (generator.random(blocks) < 1 / 30))
    kinds = generator.integers(1, SIZES[0], size=len(housed))
    for block, kind in zip(housed, kinds, strict=True):
        moved = generator.binomial(cells[block, 0], 0.5)
        if kind == 3:
            moved[0] = 0
        cells[block, 0] -= moved
        cells[block, kind] = moved
        possible[block, kind] = True
    return cells, possible


def geocodes(codes: list[str], part: str) -> list[str]:
    """Codes of blocks as the files have them: the code of the block group, then the 16 digits of
    the block.
    """
    longer = []
    for code in codes:
        tabulation = code[:12] + code[11:]
        longer.append(part[0] + tabulation[:12] + tabulation)
    return longer


def totals(cells: np.ndarray, codes: list[str], length: int) -> tuple[list[str], np.ndarray]:
    """Sums of cells by the first characters of sorted codes."""
    places, starts = np.unique(np.array([code[:length] for code in codes]), return_index=True)
    return places.tolist(), np.add.reduceat(cells, starts, axis=0)


def query_values(cells: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """True values of a query, by place."""
    values = cells
    for axis, length in enumerate(shape, 1):
        if length == 1:
            values = values.sum(axis=axis, keepdims=True)
        elif length == 3:
            parts = [
                values[:, :1],
                values[:, 1:5].sum(1, keepdims=True),
                values[:, 5:].sum(1, keepdims=True),
            ]
            values = np.concatenate(parts, axis=1)
    return values.reshape(len(cells), -1)


def variance_of(level: str, query: str) -> Fraction | None:
    """Variance 1/ρ of a query at a level, ρ its part of the budget; None if it was not measured."""
    for name, level_share, measured, share in budget():
        if (name, measured) == (level, query):
            return 1 / (PERSONS * level_share * share)
    return None


def noise(variance: Fraction, size: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Discrete Gaussian noise by the inverse of its distribution function, cut where it is below
    1e-30.
    """
    scale = float(variance) ** 0.5
    reach = int(12 * scale) + 2
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-(support**2) / (2 * float(variance)))
    steps = np.cumsum(weights / weights.sum())
    drawn = np.searchsorted(steps, generator.random(size), side="right")
    return support[np.minimum(drawn, len(support) - 1)].astype(np.int32)


def write_rows(
    folder: Path, rows: list[tuple[list[str], str, tuple[int, ...], np.ndarray, float]]
) -> None:
    """Write one Parquet file of queries: codes, name, shape, values, variance."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    columns = [
        ("geocode", pa.string()),
        ("query_name", pa.string()),
        ("query_shape", pa.list_(pa.int32())),
    ]
    columns += [("value", pa.list_(pa.int32())), ("variance", pa.float64())]
    schema = pa.schema(columns)
    with pq.ParquetWriter(folder / "part-0.parquet", schema) as writer:
        for codes, name, shape, values, variance in rows:
            width = values.shape[1]
            offsets = np.arange(0, values.size + 1, width, dtype=np.int32)
            lists = pa.ListArray.from_arrays(
                pa.array(offsets), pa.array(values.astype(np.int32).reshape(-1))
            )
            count = len(codes)
            arrays: list[Any] = [
                pa.array(codes),
                pa.array([name] * count),
                pa.array([list(shape)] * count),
            ]
            arrays += [lists, pa.array([variance] * count)]
            fitting = [array.cast(kind) for array, (_, kind) in zip(arrays, columns, strict=True)]
            writer.write_table(pa.Table.from_arrays(fitting, schema=schema))


def write_files(
    folder: Path,
    codes: list[str],
    cells: np.ndarray,
    possible: np.ndarray,
    *,
    seed: int,
    part: str = "015",
) -> None:
    """Write noisy measurements and constraints of one part of a state, at every level, with the
    exact total.
    """
    generator = np.random.default_rng(seed)
    blocks = geocodes(codes, part)
    for level in LEVELS:
        places, true = (
            (blocks, cells) if level == "Block" else totals(cells, blocks, LENGTHS[level])
        )
        bounds = possible.astype(int)
        if level != "Block":
            bounds = totals(bounds, blocks, LENGTHS[level])[1]
        rows = []
        for query, shape in SHAPES.items():
            variance = variance_of(level, query)
            if variance is not None:
                values = query_values(true, shape)
                noisy = values + noise(variance, values.shape, generator)
                rows.append((places, f"{query}_dpq", shape, noisy, float(variance)))
        write_rows(folder / f"{level}.parquet" / MEASURED / f"State={part}", rows)
        limits = np.where(bounds > 0, 99_999, 0)
        exact = [(places, "hhgq_total_ub_con", (8, 1, 1, 1), limits, 0.0)]
        exact.append((places, "hhgq_total_lb_con", (8, 1, 1, 1), np.zeros_like(limits), 0.0))
        exact.append((places, "nurse_nva_0_con", (1, 1, 1, 1), np.zeros((len(places), 1)), 0.0))
        if level == "State":
            exact.append((places, "total_con", (1, 1, 1, 1), query_values(true, (1, 1, 1, 1)), 0.0))
        write_rows(folder / f"{level}.parquet" / EXACT / f"State={part}", exact)


def write_nation(folder: Path, cells: np.ndarray, *, seed: int) -> None:
    """Write noisy measurements of a nation with these cells, (8, 2, 2, 63), and its exact total."""
    generator = np.random.default_rng(seed)
    true = cells[None]
    rows = []
    for query, shape in SHAPES.items():
        variance = variance_of(NATION, query)
        if variance is not None:
            values = query_values(true, shape)
            noisy = values + noise(variance, values.shape, generator)
            rows.append((["0"], f"{query}_dpq", shape, noisy, float(variance)))
    write_rows(folder / f"{NATION}.parquet" / MEASURED / "State=0US", rows)
    total = [(["0"], "total_con", (1, 1, 1, 1), query_values(true, (1, 1, 1, 1)), 0.0)]
    write_rows(folder / f"{NATION}.parquet" / EXACT / "State=0US", total)
