"""The test vectors of the specification, from brute force, exact fractions and many digits.

``python -m tests.spec.make_vectors`` writes spec/vectors/*.json anew (about a minute). Nothing here
uses semidp: norms are suprema over all pairs that the definitions allow, probabilities and curves
are computed with 40 digits. Numbers that are exact are text, as in the files of a release;
other numbers have 17 digits.
"""

import functools
import hashlib
import itertools
import json
import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from scipy.optimize import linprog

from tests.checker.brute_force import World, replaced, residual, table, vector_change

FOLDER = Path(__file__).parent.parent.parent / "spec" / "vectors"
mpmath.mp.dps = 40

Case = dict[str, Any]
Record = tuple[int, ...]
Pair = tuple[tuple[Record, ...], tuple[Record, ...]]


def digits(value: Any) -> str:
    """A number with 17 digits, as text that any language reads."""
    return mpmath.nstr(mpmath.mpf(value), 17, min_fixed=-5, max_fixed=17)


def real(value: Fraction | str) -> Any:
    number = Fraction(value)
    return mpmath.mpf(number.numerator) / number.denominator


# --- suprema over pairs ---------------------------------------------------------------------------


def project(record: Record, features: Iterable[int]) -> Record:
    return tuple(record[f] for f in features)


def ball_pairs(sizes: list[int], margins: list[list[int]], a: int) -> Iterator[Pair]:
    """All ways in which a records change and keep every margin, for published counts of any
    size.
    """
    domain = [*itertools.product(*map(range, sizes))]
    alike: dict[Any, list[tuple[Record, ...]]] = defaultdict(list)
    for records in itertools.combinations_with_replacement(domain, a):
        sums = [sorted(project(record, margin) for record in records) for margin in margins]
        alike[repr(sums)].append(records)
    for several in alike.values():
        yield from itertools.product(several, repeat=2)


def exchange_pairs(sizes: list[int], margins: list[list[int]]) -> Iterator[Pair]:
    """All exchanges of one person, where one carrier may serve several margins."""
    domain = [*itertools.product(*map(range, sizes))]
    for x, y in itertools.product(domain, repeat=2):
        changed = [m for m in margins if project(x, m) != project(y, m)]
        for groups in partitions(changed):
            fitting = []
            for group in groups:
                fits = [r for r in domain if all(project(r, m) == project(y, m) for m in group)]
                fitting.append(fits)
            for carriers in itertools.product(*fitting):
                after = []
                for carrier, group in zip(carriers, groups, strict=True):
                    handed = {f for margin in group for f in margin if x[f] != y[f]}
                    after.append(tuple(x[f] if f in handed else carrier[f] for f in range(len(x))))
                yield (x, *carriers), (y, *after)


def partitions(items: list[Any]) -> Iterator[list[list[Any]]]:
    if not items:
        yield []
        return
    for groups in partitions(items[1:]):
        yield [[items[0]], *groups]
        for number, group in enumerate(groups):
            yield [*groups[:number], [items[0], *group], *groups[number + 1 :]]


def change(pair: Pair, entries: Callable[[Record], dict[Any, Any]]) -> list[Any]:
    return vector_change(*pair, entries)


def norms(changes: Iterable[list[Any]]) -> dict[str, int]:
    """The largest sum of absolute values, sum of squares and absolute value."""
    largest = {"l1": 0, "l2_squared": 0, "linf": 0}
    for values in changes:
        sizes = [abs(value) for value in values]
        found = {
            "l1": sum(sizes),
            "l2_squared": sum(s * s for s in sizes),
            "linf": max([0, *sizes]),
        }
        largest = {name: max(largest[name], found[name]) for name in largest}
    return largest


MARGINS: list[tuple[list[int], list[list[int]]]] = [
    ([2, 2], [[0], [1]]),
    ([2, 3], [[0], [1]]),
    ([3, 3], [[0], [1]]),
    ([3, 4], [[0], [1]]),
    ([2, 2], [[0]]),
    ([3, 2], [[0]]),
    ([2, 3], []),
    ([4], []),
    ([2, 2, 2], [[0], [1], [2]]),
    ([2, 2, 3], [[0], [1], [2]]),
    ([2, 2, 2], [[0], [1]]),
    ([2, 3, 2], [[0], [1]]),
    ([2, 2, 2], [[0, 1]]),
    ([2, 2, 2], [[0, 1], [2]]),
    ([2, 2, 3], [[0, 1], [2]]),
    ([2, 2, 2], [[0, 1], [1, 2]]),
    ([2, 2, 3], [[0, 1], [1, 2]]),
    ([2, 2, 2], [[0, 1], [1, 2], [0, 2]]),
]


def are_disjoint(margins: list[list[int]]) -> bool:
    named = [f for margin in margins for f in margin]
    return len(named) == len(set(named))


def list_pairs(sizes: list[int], margins: list[list[int]], promise: str) -> list[Pair]:
    if promise == "exchange":
        return [*exchange_pairs(sizes, margins)]
    return [*ball_pairs(sizes, margins, int(promise))]


def promises(sizes: list[int], margins: list[list[int]]) -> list[str]:
    cells = 1
    for size in sizes:
        cells *= size
    balls = [str(a) for a in (1, 2, 3, 4) if a < 4 or cells <= 8]
    return [*balls, "exchange"] if are_disjoint(margins) else balls


def make_norms() -> Iterator[Case]:
    """Norms of tables under margins whose counts are large."""
    for sizes, margins in MARGINS:
        for promise in promises(sizes, margins):
            pairs = list_pairs(sizes, margins, promise)
            everything = [*range(len(sizes))]
            tables = [
                everything,
                *([f] for f in everything),
                *itertools.combinations(everything, 2),
            ]
            for released in sorted({tuple(features) for features in tables}):
                found = norms(change(p, lambda r, t=released: {project(r, t): 1}) for p in pairs)
                case = {"levels": sizes, "margins": margins, "promise": promise}
                yield {**case, "table": [*released], **found}


def make_reach(rng: random.Random) -> Iterator[Case]:
    """a(t) of small datasets, from all datasets that agree with their totals."""
    made = 0
    while made < 90:
        sizes = [rng.choice([2, 2, 3]) for _ in range(rng.choice([2, 2, 3]))]
        several = rng.choice([0, 1, 2, 2, 3])
        named = [
            sorted(rng.sample(range(len(sizes)), rng.choice([1, 1, 2]))) for _ in range(several)
        ]
        margins = [m for m in named if not any(set(m) < set(o) for o in named)]
        margins = [m for number, m in enumerate(margins) if m not in margins[:number]]
        records = [tuple(rng.randrange(size) for size in sizes) for _ in range(rng.randint(2, 6))]
        leaves = [[(level,) for level in range(size)] for size in sizes]
        dataset = tuple(sorted(tuple((level,) for level in record) for record in records))
        world = World(leaves, [dict.fromkeys(m, 1) for m in margins], dataset)
        if len(world.datasets) > 400:
            continue
        made += 1
        case = {"levels": sizes, "margins": margins, "records": [[*record] for record in records]}
        yield {**case, "a": world.fewest_changes()}


def make_given_totals(rng: random.Random) -> Iterator[Case]:
    """Norms of whole tables for totals that are small: only pairs of D_t count."""
    made = 0
    while made < 40:
        sizes, margins = rng.choice(MARGINS[:12])
        records = [tuple(rng.randrange(size) for size in sizes) for _ in range(rng.randint(2, 5))]
        leaves = [[(level,) for level in range(size)] for size in sizes]
        dataset = tuple(sorted(tuple((level,) for level in record) for record in records))
        world = World(leaves, [dict.fromkeys(m, 1) for m in margins], dataset)
        if not 2 <= len(world.datasets) <= 120:
            continue
        made += 1
        a, depths = rng.choice([2, 3]), [1] * len(sizes)
        changes = []
        for first, second in world.ball_pairs(a):
            moved = table(first, depths)
            moved.subtract(table(second, depths))
            changes.append([*moved.values()])
        case = {"levels": sizes, "margins": margins, "records": [[*r] for r in records], "a": a}
        yield {**case, **norms(changes)}


def make_sums() -> Iterator[Case]:
    """Sums and ranks of a private outcome of 0 to `steps` by exact groups."""
    blocks: list[tuple[list[int], list[list[int]]]] = [
        ([2], [[0]]),
        ([3], [[0]]),
        ([2, 2], [[0], [1]]),
        ([2, 3], [[0], [1]]),
        ([2, 2], [[0, 1]]),
        ([2, 2], [[0]]),
    ]
    for (sizes, margins), steps in itertools.product(blocks, (1, 2, 3)):
        for promise in ("1", "2", "3", "exchange"):
            if promise == "3" and (steps > 2 or len(sizes) > 1):
                continue
            pairs = list_pairs([*sizes, steps + 1], margins, promise)
            for by in sorted({(tuple(margins[0]),), tuple(map(tuple, margins))}):

                def add(record: Record, sets: Any = by) -> dict[Any, int]:
                    return {(k, project(record, g)): record[-1] for k, g in enumerate(sets)}

                found = norms(change(pair, add) for pair in pairs)
                groups = [[*features] for features in by]
                case = {"levels": sizes, "margins": margins, "promise": promise, "steps": steps}
                ranks = squares = 0
                for pair in pairs:
                    first, second = ([tuple((v,) for v in r) for r in side] for side in pair)
                    counts = []
                    for group in groups:
                        depths = [int(f in group) for f in range(len(sizes))] + [0]
                        counts += replaced(first, second, depths, len(sizes))
                    ranks = max(ranks, int(sum(counts)))
                    squares = max(squares, int(sum(k * k for k in counts)))
                del found["linf"]
                yield {**case, "by": groups, **found, "ranks": ranks, "ranks_squared": squares}


def make_moments() -> Iterator[Case]:
    """Moments of designs whose sums and products are published, with an outcome of 0 to `steps`."""
    one, either = ([], ["1"]), ([0], ["0", "1"])
    third = [([0], ["0", "1", "0"]), ([0], ["0", "0", "1"])]
    designs: list[tuple[list[int], list[list[int]], list[Any]]] = [
        ([2], [[0]], [one, either]),
        ([2], [[0]], [one, ([0], ["-1", "1"])]),
        ([2], [[0]], [one, ([0], ["1/2", "-1/3"])]),
        ([3], [[0]], [one, *third]),
        ([3], [[0]], [([0], ["-1", "0", "1"])]),
        ([2, 2], [[0], [1]], [one, either]),
        ([2, 2], [[0, 1]], [one, either, ([1], ["0", "1"]), ([0, 1], ["0", "0", "0", "1"])]),
        ([2, 2], [[0, 1]], [one, ([0], ["-1", "1"]), ([1], ["-1", "2"])]),
    ]
    for (sizes, margins, columns), steps in itertools.product(designs, (1, 2)):
        whole = math.lcm(*(Fraction(v).denominator for _, values in columns for v in values))
        for promise in ("1", "2", "3", "exchange"):
            if promise == "3" and len(sizes) > 1:
                continue

            def add(record: Record, seen: Any = (sizes, columns, whole)) -> dict[Any, int]:
                sizes, columns, whole = seen
                moments = {}
                for place, (features, values) in enumerate(columns):
                    cell = 0
                    for f in features:
                        cell = cell * sizes[f] + record[f]
                    moments[place] = int(Fraction(values[cell]) * whole) * record[-1]
                return moments

            pairs = list_pairs([*sizes, steps + 1], margins, promise)
            found = norms(change(pair, add) for pair in pairs)
            del found["linf"]
            case = {"levels": sizes, "margins": margins, "promise": promise, "steps": steps}
            listed = [{"features": features, "values": values} for features, values in columns]
            yield {**case, "columns": listed, **found}


def make_hulls(rng: random.Random) -> Iterator[Case]:
    """The norm whose unit ball is the hull of all moves of a table, at sums of a few moves."""
    spaces = [*MARGINS[:8], ([4, 4], [[0], [1]]), ([3, 5], [[0], [1]]), ([2, 4], [[0]])]
    for sizes, margins in spaces:
        promises = {2: ["2", "3", "exchange"], 1: ["1", "2", "3", "exchange"]}.get(len(margins))
        promises = promises or ["1", "3", "exchange"]
        for promise in [*promises, "4"] if sizes[0] == 2 and len(margins) == 2 else promises:
            cells = [*itertools.product(*map(range, sizes))]
            moves = set()
            for pair in list_pairs(sizes, margins, promise):
                difference = moved(pair)
                moves.add(tuple(difference[cell] for cell in cells))
            several = sorted(move for move in moves if any(move))
            for count in (1, 2, 3, 3):
                chosen = rng.choices(several, k=count)
                table = [sum(column) for column in zip(*chosen, strict=True)]
                if not any(table):
                    continue
                case = {"levels": sizes, "margins": margins, "promise": promise, "table": table}
                yield {**case, "norm": str(find_norm(table, several))}


def find_norm(table: list[int], moves: list[tuple[int, ...]]) -> Fraction:
    """The least sum of weights of moves that add up to a table. A solver proposes the weights and
    the dual, which are proved in fractions.
    """
    answer = linprog([1] * len(moves), A_eq=np.transpose(moves), b_eq=table)
    weights = [Fraction(float(w)).limit_denominator(1000) for w in answer.x]
    dual = [Fraction(float(y)).limit_denominator(1000) for y in answer.eqlin.marginals]
    for cell, value in enumerate(table):
        used = [w * move[cell] for w, move in zip(weights, moves, strict=True) if w]
        assert sum(used) == value
    assert min(weights) >= 0
    assert max(sum(map(Fraction.__mul__, dual, map(Fraction, move))) for move in moves) <= 1
    norm = sum(weights, Fraction(0))
    assert sum(y * value for y, value in zip(dual, table, strict=True)) == norm
    return norm


def make_residuals() -> Iterator[Case]:
    """The worst squared change of residuals, alone and together with equal noise."""
    chosen = [MARGINS[0], MARGINS[1], *MARGINS[4:6], *MARGINS[8:9], *MARGINS[10:13]]
    for sizes, margins in chosen:
        leaves = [[(level,) for level in range(size)] for size in sizes]
        for promise in ("2", "exchange"):
            pairs = list_pairs(sizes, margins, promise)
            different = {repr(sorted(moved(pair).items())): pair for pair in pairs}
            vectors = [*itertools.product((0, 1), repeat=len(sizes))]
            below = {
                tuple(int(f in m and keep[f]) for f in range(len(sizes)))
                for m in margins
                for keep in vectors
            }
            open_ones = [d for d in vectors if any(d) and d not in below]
            worst, largest = dict.fromkeys(open_ones, Fraction(0)), Fraction(0)
            for pair in different.values():
                first, second = (tuple(tuple((v,) for v in r) for r in side) for side in pair)
                total = Fraction(0)
                for depths in open_ones:
                    one, two = residual(first, depths, leaves), residual(second, depths, leaves)
                    square = sum(((one[cell] - two[cell]) ** 2 for cell in one), Fraction(0))
                    worst[depths] = max(worst[depths], square)
                    total += square
                largest = max(largest, total)
            case = {"levels": sizes, "margins": margins, "promise": promise}
            for depths, square in worst.items():
                features = [f for f, depth in enumerate(depths) if depth]
                yield {**case, "residuals": [features], "cost": str(square)}
            together = [[f for f, depth in enumerate(depths) if depth] for depths in worst]
            yield {**case, "residuals": together, "cost": str(largest)}


def moved(pair: Pair) -> Counter[Record]:
    counts = Counter(pair[1])
    counts.subtract(Counter(pair[0]))
    return Counter({record: count for record, count in counts.items() if count})


# --- noise ----------------------------------------------------------------------------------------


def make_scales() -> Iterator[Case]:
    """The exact parameter of the noise for a norm and a budget."""
    budgets = ("1/10", "1/2", "1", "2", "7/3")
    for (sizes, margins), promise in itertools.product(MARGINS[:8], ("2", "3")):
        pairs = list_pairs(sizes, margins, promise)
        found = norms(change(p, lambda r: {r: 1}) for p in pairs)
        case = {"levels": sizes, "margins": margins, "a": int(promise)}
        for text in budgets:
            amount = Fraction(text)
            if not found["l1"]:
                continue
            square = Fraction(found["l2_squared"])
            rounded = {"law": "rounded gaussian", "mu": text, "sigma2": str(square / amount**2)}
            discrete = {
                "law": "discrete gaussian",
                "rho": text,
                "sigma2": str(square / (2 * amount)),
            }
            laplace = {"law": "laplace", "epsilon": text, "scale": str(found["l1"] / amount)}
            for law in (rounded, discrete, laplace):
                yield {**case, **law}


def probability(law: str, parameter: Fraction, k: int) -> Any:
    if law == "rounded gaussian":
        sigma = mpmath.sqrt(real(parameter))
        half = mpmath.mpf(1) / 2
        return (
            mpmath.erfc((abs(k) - half) / sigma / mpmath.sqrt(2)) / 2
            - mpmath.erfc((abs(k) + half) / sigma / mpmath.sqrt(2)) / 2
        )
    if law == "discrete gaussian":
        return weight(parameter, k) / total_weight(parameter)
    decay = mpmath.exp(-1 / real(parameter))
    return (1 - decay) / (1 + decay) * decay ** abs(k)


@functools.cache
def total_weight(sigma2: Fraction) -> Any:
    return mpmath.fsum(weight(sigma2, j) for j in range(-400, 401))


def weight(sigma2: Fraction, k: int) -> Any:
    return mpmath.exp(-mpmath.mpf(k * k) / (2 * real(sigma2)))


def variance(law: str, parameter: Fraction) -> Any:
    reach = 60 + int(40 * max(parameter, 1))
    if law != "laplace":
        reach = 60 + int(40 * max(float(parameter) ** 0.5, 1))
    return mpmath.fsum(2 * k * k * probability(law, parameter, k) for k in range(1, reach))


def make_noise() -> Iterator[Case]:
    for law in ("rounded gaussian", "discrete gaussian", "laplace"):
        for text in ("1/4", "1", "9/2", "20"):
            spread = digits(variance(law, Fraction(text)))
            for k in (0, 1, 2, 7, 30):
                chance = digits(probability(law, Fraction(text), k))
                case = {"law": law, "parameter": text, "k": k}
                yield {**case, "probability": chance, "variance": spread}


# --- curves and conversions -----------------------------------------------------------------------


def phi(x: Any) -> Any:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def quantile(p: Any) -> Any:
    return mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)


def curve(kind: str, parameter: Fraction, alpha: Any, delta: Fraction = Fraction(0)) -> Any:
    number = real(parameter)
    if kind == "gaussian":
        return phi(quantile(alpha) - mpmath.sqrt(number))
    if kind == "approximate":
        low = mpmath.exp(-number) * (alpha - real(delta))
        high = 1 - real(delta) - mpmath.exp(number) * (1 - alpha)
        return max(0, low, high)
    if kind == "laplace":
        if alpha < mpmath.mpf(1) / 2:
            return alpha * mpmath.exp(-number)
        if 1 - alpha > mpmath.exp(-number) / 2:
            return mpmath.exp(-number) / (4 * (1 - alpha))
        return 1 - (1 - alpha) * mpmath.exp(number)
    root = mpmath.sqrt(number)
    rare = mpmath.exp(-((mpmath.sqrt(-mpmath.log(alpha)) + root) ** 2))
    gap = mpmath.sqrt(-mpmath.log(1 - alpha)) - root
    return max(rare, -mpmath.expm1(-(gap**2)) if gap > 0 else 0)


def make_curves() -> Iterator[Case]:
    alphas = ("1/100", "1/4", "1/2", "9/10", "99/100")
    for kind, texts in (
        ("gaussian", ("1/4", "1", "6")),
        ("laplace", ("1/2", "1", "3")),
        ("zcdp", ("1/20", "1/2", "2")),
    ):
        for text, alpha in itertools.product(texts, alphas):
            value = digits(curve(kind, Fraction(text), real(alpha)))
            yield {"kind": kind, "parameter": text, "alpha": alpha, "value": value}
    for epsilon, delta, k in itertools.product(("1/2", "1"), ("0", "1/1000"), (1, 2, 3)):
        for alpha in alphas:
            value = real(alpha)
            for _ in range(k):
                value = curve("approximate", Fraction(epsilon), value, Fraction(delta))
            case = {"kind": "approximate", "parameter": epsilon, "delta": delta, "group": k}
            yield {**case, "alpha": alpha, "value": digits(value)}


def gaussian_delta(mu_squared: Fraction, epsilon: Fraction) -> Any:
    mu, e = mpmath.sqrt(real(mu_squared)), real(epsilon)
    return phi(mu / 2 - e / mu) - mpmath.exp(e) * phi(-mu / 2 - e / mu)


def zcdp_epsilon(rho: Fraction, delta: Fraction) -> Any:
    """inf over x > 1 of rho x + ln(1/(x delta))/(x - 1) + ln(1 - 1/x), by its derivative."""
    r, d = real(rho), real(delta)

    def slope(x: Any) -> Any:
        return r - mpmath.log(1 / (x * d)) / (x - 1) ** 2

    low, high = mpmath.mpf(1) + mpmath.mpf(10) ** -12, mpmath.mpf(10) ** 9
    for _ in range(200):
        middle = mpmath.sqrt((low - 1) * (high - 1)) + 1
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    x = high
    return r * x + mpmath.log(1 / (x * d)) / (x - 1) + mpmath.log(1 - 1 / x)


def make_conversions() -> Iterator[Case]:
    deltas = ("1e-3", "1e-6", "1e-9", "1e-12")
    for mu_squared, epsilon in itertools.product(
        ("1/100", "1/4", "1", "6", "25"), ("0", "1/2", "2", "6")
    ):
        value = digits(gaussian_delta(Fraction(mu_squared), Fraction(epsilon)))
        case = {"find": "delta", "from": "gaussian", "mu_squared": mu_squared}
        yield {**case, "epsilon": epsilon, "delta": value}
    for mu_squared, delta in itertools.product(("1/100", "1", "6"), deltas):
        low, high = Fraction(0), Fraction(64)
        for _ in range(100):
            middle = (low + high) / 2
            is_above = gaussian_delta(Fraction(mu_squared), middle) > real(delta)
            low, high = (middle, high) if is_above else (low, middle)
        found = real(high) if low else mpmath.mpf(0)
        case = {"find": "epsilon", "from": "gaussian", "mu_squared": mu_squared}
        yield {**case, "delta": delta, "epsilon": digits(found)}
    for rho, delta in itertools.product(("1/100", "1/10", "1/2", "2.56", "10.24"), deltas):
        value = digits(zcdp_epsilon(Fraction(rho), Fraction(delta)))
        case = {"find": "epsilon", "rho": rho, "delta": delta}
        yield {**case, "from": "zcdp", "epsilon": value}
        paper = real(rho) + 2 * mpmath.sqrt(real(rho) * mpmath.log(1 / real(delta)))
        yield {**case, "from": "zcdp, simple", "epsilon": digits(paper)}
    for epsilon in ("1/10", "1/2", "1", "2", "5"):
        e = real(epsilon)
        mu = 2 * mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(e / 2))
        yield {"find": "mu", "from": "pure", "epsilon": epsilon, "mu": digits(mu)}
        rho = min(Fraction(epsilon) ** 2 / 2, Fraction(epsilon))
        yield {"find": "rho", "from": "pure", "epsilon": epsilon, "rho": str(rho)}
    for epsilon, delta, k in itertools.product(("1/2", "1"), ("0", "1e-6"), (2, 3)):
        e, d = real(epsilon), real(delta)
        grown = d * mpmath.expm1(k * e) / mpmath.expm1(e)
        case = {
            "find": "group",
            "from": "approximate",
            "epsilon": epsilon,
            "delta": delta,
            "group": k,
        }
        yield {**case, "group_epsilon": str(k * Fraction(epsilon)), "group_delta": digits(grown)}


def make_compositions() -> Iterator[Case]:
    """delta(epsilon) of several pure mechanisms, each at its worst a coin that is told truly with
    odds exp(e); and sums of mu squared and of rho.
    """
    for terms in (["1"], ["1"] * 2, ["1/2"] * 3, ["1/2", "1"], ["1/4"] * 6, ["1/10"] * 10):
        for epsilon in ("0", "1/2", "1"):
            total = mpmath.mpf(0)
            for signs in itertools.product((1, -1), repeat=len(terms)):
                chance = mpmath.mpf(1)
                for sign, term in zip(signs, terms, strict=True):
                    chance /= 1 + mpmath.exp(-sign * real(term))
                loss = sum(sign * Fraction(t) for sign, t in zip(signs, terms, strict=True))
                if loss > Fraction(epsilon):
                    total += chance * -mpmath.expm1(real(Fraction(epsilon) - loss))
            yield {"pure": terms, "epsilon": epsilon, "delta": digits(total)}
    for squares in (["1", "6"], ["1/4"] * 5, ["8903491/524288", "1/3"]):
        total_square = sum(map(Fraction, squares))
        yield {"mu_squared": squares, "total": {"mu_squared": str(total_square)}}
    for mus, rhos, epsilons in (
        ([], ["1/10", "1/5"], []),
        (["1"], ["1/2"], []),
        (["1/4", "6"], ["1/3"], ["1"]),
        ([], ["1/100"], ["3", "1/2"]),
    ):
        rho = sum((Fraction(m) / 2 for m in mus), Fraction(0)) + sum(map(Fraction, rhos))
        rho += sum(min(Fraction(e) ** 2 / 2, Fraction(e)) for e in epsilons)
        parts = {"mu_squared": mus, "rho": rhos, "pure": epsilons}
        yield {**parts, "total": {"rho": str(rho)}}


# --- the ledger -----------------------------------------------------------------------------------


def chain(before: str, value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def make_ledgers(rng: random.Random) -> Iterator[Case]:
    """Charges of one kind against a budget: which fit, the total after each, and the hashes."""
    kinds = {"zcdp": ("rho", "rho"), "gdp": ("mu", "mu_squared"), "pure": ("epsilon", "epsilon")}
    for number, (kind, (name, key)) in itertools.product(range(14), kinds.items()):
        limit = Fraction(rng.randint(2, 12), rng.choice([1, 2, 3, 7]))
        budget = {"kind": kind, name: str(limit)} | ({"delta": "0"} if kind == "pure" else {})
        opened = {"schema_version": 3, "id": f"{number:032x}", "budget": budget, "under": None}
        head, spent, charges = chain("", opened), Fraction(0), []
        allowed = limit**2 if kind == "gdp" else limit
        for place in range(rng.randint(2, 5)):
            group, share = rng.choice([1, 1, 2, 3]), Fraction(rng.randint(1, 9), 20) * allowed
            amount = share / group**2
            cost = amount * (group if kind == "pure" else group**2)
            accepted = spent + cost <= allowed
            entry = {"label": f"été {place}", "group": group, "amount": str(amount)}
            spent += cost if accepted else 0
            charge = {**entry, "accepted": accepted, "total": str(spent)}
            if accepted:
                head = chain(head, entry)
                charge["head"] = head
            charges.append(charge)
        yield {"opened": opened, "amount_of": key, "charges": charges}


def make_series(rng: random.Random) -> Iterator[Case]:
    """What one person can lose over periods: the worst admissible set."""
    for rule, _ in itertools.product(("any", "consecutive"), range(12)):
        most = rng.randint(1, 3)
        spent = [Fraction(rng.randint(0, 6), 10) for _ in range(rng.randint(3, 7))]
        if rule == "any":
            worst = sum(sorted(spent, reverse=True)[:most])
        else:
            worst = max(sum(spent[start : start + most]) for start in range(len(spent)))
        case = {"most": most, "consecutive": rule == "consecutive"}
        yield {**case, "rho": [str(value) for value in spent], "worst": str(worst)}


def make_linked() -> Iterator[Case]:
    """How many members and units change together: chapter 3's formulas, for totals that are
    large.
    """
    for place, own in itertools.product((0, 1), (0, 1, 2)):
        members = 2 + own
        case = {"protect": "member", "place_blocks": place, "own_blocks": own}
        units = {"own": 0, "size": 2 * members, "derived": 2 * members}
        yield {**case, "members": members, "units": units}
    for least, most, q_m, q_u in itertools.product((0, 1), (2, 4), (0, 1, 2), (0, 1)):
        case = {
            "protect": "unit",
            "least": least,
            "most": most,
            "member_blocks": q_m,
            "unit_blocks": q_u,
        }
        units = {
            "own": 1 + q_u,
            "size": 1 + q_u + most - least,
            "derived": 1 + q_u + most * (1 + q_m),
        }
        yield {**case, "members": most * (1 + q_m + q_u), "units": units}


FILES: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {
    "reach": ("a(t) of the dataset's totals", lambda: make_reach(random.Random(49))),
    "norms": ("norms of a table, published counts large", make_norms),
    "given_totals": (
        "norms of the whole table for these totals",
        lambda: make_given_totals(random.Random(50)),
    ),
    "sums": ("norms of sums and of replaced values", make_sums),
    "moments": ("norms of moments of designs", make_moments),
    "hulls": (
        "K-norms of tables, published counts large",
        lambda: make_hulls(random.Random(53)),
    ),
    "residuals": ("worst squared change of residuals with equal noise", make_residuals),
    "linked": ("members and units that change together", make_linked),
    "scales": ("exact parameters of noise", make_scales),
    "noise": ("probabilities and variances of noise", make_noise),
    "curves": ("values of tradeoff functions", make_curves),
    "conversions": ("what one guarantee says in another form", make_conversions),
    "compositions": ("several measurements together", make_compositions),
    "ledgers": ("charges, totals and hashes", lambda: make_ledgers(random.Random(51))),
    "series": ("the worst loss of one person over periods", lambda: make_series(random.Random(52))),
}


def make_file(name: str) -> str:
    """The text of a file of vectors: a case in a line."""
    what, make = FILES[name]
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in make())
    return f'{{"vectors": "{name}", "what": "{what}", "cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in sys.argv[1:] or FILES:
        (FOLDER / f"{each}.json").write_text(make_file(each), encoding="utf-8", newline="\n")
