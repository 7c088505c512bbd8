"""Microdata of semidp next to AIM and MST: a row of the table in docs/microdata.md for each run.

``python benchmarks/microdata_peers.py aim --folder private-pgm --data adult --rho 0.1 --seed 1``

The folder is a checkout of ryan112358/private-pgm at 41b5346 (June 2024, the last version with
numpy), which needs networkx and a pandas below 3. Its rho is for a record added or removed. If one
is replaced, noise costs twice and private choices cost four times as much; SHARES makes up for it.
"""

import argparse
import csv
import importlib
import resource
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from microdata import EXACT, ORDERED, Codes, adult, average_errors, draw_full, draw_microdata
from numpy.typing import NDArray
from records import DATA, NAMES, persons
from scipy import optimize, sparse, special
from scipy.cluster.hierarchy import DisjointSet

SHARES = {"mst": 3 / 8, "aim": 1 / 2.19}
"""MST spends 2/3 on noise and 1/3 on choices. AIM spends 9/160 on one-way counts, and of the rest
9/10 on noise: 2 × 9/160 + (2 × 9/10 + 4 × 1/10) × 151/160 = 2.19."""
CHECKED_STEPS, LEAST_PROGRESS = 50, 0.1
"""A fit ends when 50 steps lower half of chi squared by less than 0.1."""
OUTCOMES = {"adult": ("income>50K", 1), "persons": ("work", 0), "households": ("workers", 0)}
"""The column that the classifier predicts, and the level."""
INCOME_STEP = 5000


class FitEnd(Exception):
    """A model was fitted well enough."""


def main() -> None:
    """Run one way once and print its row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=["microdata", "full", "mst", "aim"])
    parser.add_argument("--folder", type=Path, help="checkout of private-pgm")
    parser.add_argument("--data", choices=list(OUTCOMES), default="adult")
    parser.add_argument("--rho", default="0.1", help="for a replaced record")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--megabytes", type=float, default=10, help="largest model of AIM")
    parser.add_argument(
        "--target", nargs="*", default=[], help="columns whose pairs get less noise"
    )
    parser.add_argument("--exact", action="store_true", help="sex, race and income of Adult")
    given = parser.parse_args()
    names, codes, levels = read_data(given.data)
    sizes = [len(levels[name]) for name in names]
    started = time.process_time()
    if given.way in SHARES:
        records = draw_peer(given, names, codes, sizes)
    elif given.way == "full":
        records = draw_full(names, codes, levels, given.rho, given.seed)
    else:
        ordered = [name for name in (*ORDERED, "size", "workers", "income") if name in names]
        settings = {"rho": given.rho, "ordered": ordered, "target": given.target}
        if given.exact:
            settings |= {"exact": EXACT, "adjacency": "exchange"}
        records = draw_microdata(names, codes, levels, given.seed, **settings)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    errors = average_errors(records, codes, sizes, names, EXACT)
    outcome, level = OUTCOMES[given.data]
    area = area_under_curve(records, codes, sizes, names.index(outcome), level)
    cells = [" ".join(sys.argv[1:])]
    cells += [f"{errors[word]:.4f}" for word in ("one-way", "pairs", "triples")]
    cells += [f"{errors['missed']:.0f}", f"{area:.4f}", f"{seconds:.0f} s", f"{peak:.2f} GB"]
    print(f"| {' | '.join(cells)} |")


def read_data(name: str) -> tuple[list[str], Codes, dict[str, list[str]]]:
    """Return the columns of a dataset, its codes and its levels."""
    if name == "adult":
        return adult()
    if name == "persons":
        return list(NAMES), *persons()
    with (DATA / "sandag_households.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["zone", "persons", "workers", "income", "type", "building", "unittype"]
    values = np.array([[int(row[column]) for column in names] for row in rows])
    values[:, names.index("income")] //= INCOME_STEP
    names[names.index("persons")] = "size"
    codes, levels = np.zeros_like(values), {}
    for place, column in enumerate(names):
        present, codes[:, place] = np.unique(values[:, place], return_inverse=True)
        levels[column] = [str(level) for level in present]
    return names, codes, levels


# --- AIM and MST ----------------------------------------------------------------------------------


def draw_peer(given: argparse.Namespace, names: list[str], codes: Codes, sizes: list[int]) -> Codes:
    """Draw as many records as there are, which is public if records are replaced."""
    import pandas

    np.random.seed(given.seed)  # noqa: NPY002
    engine = import_peer(given.folder)
    engine.known_total = len(codes)
    mbi = importlib.import_module("mbi")
    frame = pandas.DataFrame(codes, columns=names)
    data = mbi.Dataset(frame, mbi.Domain(names, sizes))
    rho = float(given.rho) * SHARES[given.way]
    mechanism: Any = importlib.import_module(f"mechanisms.{given.way}")
    mechanism.FactoredInference = engine
    if given.way == "mst":
        mechanism.cdp_rho = lambda epsilon, delta: rho
        mechanism.DisjointSet = partial(DisjointSet, names)  # scipy's does not add what it is asked
        made = mechanism.MST(data, 1.0, 1e-9)
    else:
        aim = mechanism.AIM(1.0, 0, max_model_size=given.megabytes)
        aim.rho = rho
        columns = range(len(names))
        pairs = [(names[one], names[two]) for one in columns for two in columns if one < two]
        _, made = aim.run(data, [(pair, 1.0) for pair in pairs], num_synth_rows=len(codes))
    return made.df[names].to_numpy(dtype=np.int64)


def import_peer(folder: Path) -> Any:
    """Return an engine that ends a fit when it makes no progress, and knows the number of records.

    What private-pgm imports and these two mechanisms hardly use is replaced by stand-ins.
    """
    sys.path[:0] = [str(folder / "src"), str(folder / "mechanisms"), str(folder)]
    hdmm, matrix, autodp = ModuleType("hdmm"), ModuleType("hdmm.matrix"), ModuleType("autodp")
    matrix.Identity = sparse.identity  # type: ignore[attr-defined]
    autodp.privacy_calibrator = None  # type: ignore[attr-defined]
    sys.modules |= {"hdmm": hdmm, "hdmm.matrix": matrix, "autodp": autodp}
    inference = importlib.import_module("mbi.inference").FactoredInference

    class Engine(inference):  # type: ignore[misc, valid-type]
        known_total = 0

        def _setup(self, measurements: Any, total: Any) -> None:
            super()._setup(measurements, self.known_total)
            model, propagate = self.model, self.model.belief_propagation

            def remember(potentials: Any, logZ: bool = False) -> Any:
                if logZ:
                    return propagate(potentials, logZ)
                model.potentials, model.marginals = potentials, propagate(potentials)
                return model.marginals

            model.belief_propagation = remember

        def estimate(self, measurements: Any) -> Any:
            losses: list[float] = []
            steps = iter(range(self.iters + 1))

            def check(marginals: Any) -> None:
                if next(steps) % CHECKED_STEPS == 0:
                    losses.append(self._marginal_loss(marginals)[0])
                    if len(losses) > 1 and losses[-2] - losses[-1] < LEAST_PROGRESS:
                        raise FitEnd

            try:
                return super().estimate(measurements, callback=check)
            except FitEnd:
                return self.model

    return Engine


# --- classifier -----------------------------------------------------------------------------------


def area_under_curve(
    records: Codes, truth: Codes, sizes: list[int], place: int, level: int
) -> float:
    """Train a logistic regression on records, and test it on a third of the truth."""
    train, right = _mark_levels(records, sizes, place), records[:, place] == level
    signs = np.where(right, 1.0, -1.0)

    def lose(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margins = signs * (train @ weights)
        slope = train.T @ (-signs * special.expit(-margins)) + weights
        return float(np.logaddexp(0, -margins).sum() + weights @ weights / 2), slope

    fitted = optimize.minimize(lose, np.zeros(train.shape[1]), jac=True, method="L-BFGS-B")
    test = truth[::3]
    scores, truly = _mark_levels(test, sizes, place) @ fitted.x, test[:, place] == level
    ranks = np.argsort(np.argsort(scores, kind="stable"), kind="stable") + 1
    above = ranks[truly].sum() - truly.sum() * (truly.sum() + 1) / 2
    return float(above / truly.sum() / (~truly).sum())


def _mark_levels(codes: Codes, sizes: list[int], place: int) -> sparse.csr_array:
    """Return a column of zeros and ones for each level of each column but the outcome."""
    blocks = []
    for column, size in enumerate(sizes):
        if column != place:
            rows = np.arange(len(codes))
            marks = sparse.coo_array(
                (np.ones(len(codes)), (rows, codes[:, column])), (len(codes), size)
            )
            blocks.append(marks)
    return sparse.csr_array(sparse.hstack(blocks))


if __name__ == "__main__":
    main()
