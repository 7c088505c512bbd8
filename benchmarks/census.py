"""The Census's noisy measurement files: a state's time and memory, ten times its blocks, and
coverage.

The files are simulated from the real blocks of Hawaii (benchmarks/data), as
`simulated/noisy_measurements.py` says. Each estimate runs in a process of its own, which reports
its processor time and its peak memory. Districts follow no boundary: blocks are dealt to 100
districts at random, and every district takes half of one block of another.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from simulated.noisy_measurements import (
    SHAPES,
    people_of,
    query_values,
    read_blocks,
    variance_of,
    write_files,
)

HERE = Path(__file__).parent
BLOCKS = HERE / "data" / "hawaii_blocks_2020.csv"
SECONDS, BYTES = 30.0, 3e9
SLOWER = 1.3
"""Most that a block may take longer where there are ten times as many."""
DISTRICTS, COPIES = 100, 10
SEEDS = (15, 16, 17, 18)
DEPTHS = {"blocks": 5, "block groups": 4, "tracts": 3}
LEVELS = {"county": 2, "tract": 3, "block group": 4, "block": 5}
PEOPLE = {
    "all": "everybody",
    "adults, all": "adults",
    "adults, asian": "adults, Asian, not Hispanic",
}


def run() -> Iterator[dict[str, Any]]:
    """Time Hawaii and ten times Hawaii; count how often 95% intervals hold."""
    with tempfile.TemporaryDirectory(prefix=".semidp-bench-") as name:
        root = Path(name)
        cells, codes, possible = hawaii()
        write_districts(root / "districts.csv", codes)
        held: dict[str, list[float]] = {}
        for seed in SEEDS:
            folder = root / str(seed)
            write_files(folder, codes, cells, possible, seed=seed)
            for place, share in coverage(folder, cells, codes).items():
                held.setdefault(place, []).append(share)
        once = _child(root / str(SEEDS[0]), root / "districts.csv")
        yield _most(
            "Hawaii, 14,732 blocks × 2,016 cells: processor seconds / 30",
            once["seconds"] / SECONDS,
            1,
        )
        yield _most("Hawaii: peak memory / 3 GB", once["bytes"] / BYTES, 1)
        multiply(root / str(SEEDS[0]), root / "more", COPIES)
        more = _child(root / "more", None)
        alone = _child(root / str(SEEDS[0]), None)
        slower = more["seconds"] / alone["seconds"] / COPIES
        yield _most("time a block, ten times the blocks / once", slower, SLOWER)
        for place, shares in held.items():
            share = float(np.mean(shares))
            print(f"             {place}: 95% intervals hold {share:.4f} of the time", flush=True)
            yield _most(
                f"coverage of {place}: distance from 0.95 / 0.01", abs(share - 0.95) / 0.01, 1
            )


def hawaii() -> tuple[np.ndarray, list[str], np.ndarray]:
    """People of Hawaii by block and cell, codes of the blocks, and quarters that each block has."""
    codes, groups = read_blocks(BLOCKS)
    cells, possible = people_of(groups, np.random.default_rng(2020))
    return cells, codes, possible


def districts_of(codes: list[str]) -> list[tuple[str, str, float]]:
    """Rows of a file of districts: blocks dealt at random, and half a block of the next
    district.
    """
    generator = np.random.default_rng(100)
    dealt = generator.permutation(len(codes)) % DISTRICTS
    rows = [
        (f"district {district:03}", code, 1.0) for code, district in zip(codes, dealt, strict=True)
    ]
    for district in range(DISTRICTS):
        first = int(np.flatnonzero(dealt == (district + 1) % DISTRICTS)[0])
        rows.append((f"district {district:03}", codes[first], 0.5))
    return sorted(rows)


def write_districts(path: Path, codes: list[str]) -> None:
    """Write the file of districts."""
    lines = [f"{name},{code},{weight}\n" for name, code, weight in districts_of(codes)]
    path.write_text("name,geocode,weight\n" + "".join(lines))


def coverage(folder: Path, cells: np.ndarray, codes: list[str]) -> dict[str, float]:
    """Share of 95% intervals that hold the truth, at every level and for districts, over all groups
    of people.
    """
    from semidp.inference import Share
    from semidp.inference.area_estimates import estimate_state
    from semidp.inference.noisy_files import Areas, groups

    files, answer = estimate_state(folder, "15")
    weights = np.stack(list(groups().values()))
    truth = np.tensordot(cells, weights, axes=([1, 2, 3, 4], [1, 2, 3, 4]))
    shares = {}
    for place, depth in DEPTHS.items():
        nodes = np.arange(answer.places.counts[depth])
        totals = np.zeros((len(nodes), truth.shape[1]))
        np.add.at(totals, answer.places.ancestors(5, depth), truth)
        shares[place] = _held(answer.sums({depth: Share(nodes, nodes)}, weights), totals)
    areas = Areas(districts_of(codes))
    share = areas.shares(files)[5]
    totals = np.zeros((DISTRICTS, truth.shape[1]))
    np.add.at(totals, share.areas, share.weights[:, None] * truth[share.nodes])
    shares["100 districts"] = _held(answer.sums({5: share}, weights), totals)
    return shares


def _held(sums: Any, truth: np.ndarray) -> float:
    """Share of intervals that hold, of those that are not exact."""
    ends = sums.intervals(0.95)
    inside = (ends[..., 0] <= truth) & (truth <= ends[..., 1])
    noisy = sums.variances > 1e-9
    return float(inside[noisy].mean())


def errors(folder: Path, cells: np.ndarray) -> list[tuple[str, str, float, float, float]]:
    """Standard errors before and after, and errors made, by level and group of people: root mean
    squares over places.

    Before: of the one query at that level that says most of the group.
    """
    from semidp.inference import Share
    from semidp.inference.area_estimates import estimate_state
    from semidp.inference.noisy_files import groups

    _, answer = estimate_state(folder, "15")
    rows = []
    for level, depth in LEVELS.items():
        for name, label in PEOPLE.items():
            weights = groups()[name]
            truth = np.tensordot(cells, weights, axes=4)
            nodes = np.arange(answer.places.counts[depth])
            totals = np.zeros(len(nodes))
            np.add.at(totals, answer.places.ancestors(5, depth), truth)
            sums = answer.sums({depth: Share(nodes, nodes)}, weights[None])
            made = np.sqrt(np.mean((sums.values[:, 0] - totals) ** 2))
            after = np.sqrt(sums.variances[:, 0].mean())
            rows.append((level, label, before(level, weights), float(after), float(made)))
    return rows


def before(level: str, weights: np.ndarray) -> float:
    """Least standard error of a group among the queries of a level, each by itself."""
    variances = []
    for query, shape in SHAPES.items():
        variance = variance_of(level.replace(" ", "_").title(), query)
        values = query_values(np.stack([weights, np.ones_like(weights)]), shape)
        # A query says what a group has if it adds up cells that are all in it, or all outside.
        whole = np.isin(values[0], (0.0, *np.unique(values[1]))) & (
            (values[0] == 0) | (values[0] == values[1])
        )
        if variance is not None and whole.all():
            variances.append(float(variance) * (values[0] > 0).sum())
    return float(np.sqrt(min(variances)))


def draw(rows: list[tuple[str, str, float, float, float]], path: Path) -> None:
    """Draw standard errors before and after."""
    from semidp.publish.plotting import BLUE, GREY, drawing, plain_numbers

    levels = list(LEVELS)
    with drawing(9.6, 3.6, columns=len(PEOPLE)) as (figure, axes):
        for panel, label in zip(axes, PEOPLE.values(), strict=True):
            chosen = [row for row in rows if row[1] == label]
            lines = np.arange(len(levels))
            for place, (_, _, old, new, _) in enumerate(chosen):
                panel.plot([old, new], [place, place], color=GREY, linewidth=1, zorder=1)
                panel.annotate(
                    f"{old:.1f}",
                    (old, place),
                    (0, 7),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
                panel.annotate(
                    f"{new:.1f}",
                    (new, place),
                    (0, -13),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
            panel.scatter(
                [row[2] for row in chosen], lines, color=GREY, label="one query alone", zorder=2
            )
            panel.scatter(
                [row[3] for row in chosen], lines, color=BLUE, label="everything together", zorder=2
            )
            panel.set(xscale="log", xlim=(0.8, 150), title=label, xlabel="standard error, persons")
            panel.set_yticks(lines, levels if panel is axes[0] else [""] * len(levels))
            panel.set_ylim(len(levels) - 0.4, -0.6)
            plain_numbers(panel.xaxis)
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2)
        figure.savefig(path, dpi=150)


def multiply(folder: Path, target: Path, copies: int) -> None:
    """Copy the files with so many times the places below the state; only the codes differ."""
    import duckdb

    for source in sorted(folder.rglob("*.parquet")):
        if not source.is_file():
            continue
        place = target / source.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        state = source.relative_to(folder).parts[0].startswith("State.")
        for copy in range(1 if state else copies):
            code = "geocode" if state else f"left(geocode, 3) || '{copy}' || substr(geocode, 4)"
            query = f"SELECT * REPLACE ({code} AS geocode) FROM read_parquet('{source}')"
            duckdb.sql(query).write_parquet(str(place.with_name(f"part-{copy}.parquet")))


def _child(folder: Path, districts: Path | None) -> dict[str, float]:
    """Estimate in a process of its own: districts through the command's own function, or the state
    alone.
    """
    words = [sys.executable, str(HERE / "census.py"), "--folder", str(folder)]
    words += ["--districts", str(districts)] if districts is not None else []
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def peak_memory() -> int:
    """Most bytes that this process has held: the system's own count where it has one.

    What getrusage says may be the peak of the process that started this one.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _most(name: str, ratio: float, target: float) -> dict[str, Any]:
    return {"name": name, "ratio": ratio, "target": f"≤ {target}", "ok": ratio <= target}


def main() -> None:
    """Estimate one folder and print what it took; --simulate writes files to a folder; --figure
    draws errors.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--districts", type=Path)
    parser.add_argument("--simulate", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    if options.simulate is not None:
        cells, codes, possible = hawaii()
        write_files(options.simulate, codes, cells, possible, seed=SEEDS[0])
        write_districts(options.simulate / "districts.csv", codes)
        return
    if options.figure is not None:
        rows = errors(options.folder, hawaii()[0])
        draw(rows, options.figure)
        for level, label, old, new, made in rows:
            print(f"| {level} | {label} | {old:.1f} | {new:.1f} | {made:.1f} |")
        return
    from semidp.inference import CensusTask, estimate_areas, read_areas
    from semidp.inference.area_estimates import estimate_state

    start = time.process_time()
    if options.districts is not None:
        estimate_areas(CensusTask(options.folder, read_areas(options.districts)))
    else:
        estimate_state(options.folder, "15")
    seconds = time.process_time() - start
    print(json.dumps({"seconds": seconds, "bytes": peak_memory()}))


if __name__ == "__main__":
    main()
