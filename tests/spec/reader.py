"""What a release guarantees: a reader written from the chapters of spec/ alone, without semidp.

Numbers in brackets are rules of the specification. What is left out raises `NotCovered`.
"""

import functools
import itertools
import json
import math
from collections import Counter, defaultdict
from fractions import Fraction


class NotCovered(Exception):
    """A part of the specification that this reader leaves out."""


def require(is_covered, what):
    if not is_covered:
        raise NotCovered(what)


def list_paths(tree):
    """The leaves of a tree of labels (11.3)."""
    if isinstance(tree, list):
        return [(label,) for label in tree]
    return [(label, *path) for label, below in tree.items() for path in list_paths(below)]


class Space:
    """The public facts: leaves of features as paths, and exact margins by depths (11.3)."""

    def __init__(self, document):
        self.n, self.names, self.leaves, margins = document["n"], [], [], []
        require(not document["schema"]["structural_zero"], "structural zeros")
        for entry in document["schema"]["feature"]:
            require(not {"null_level", "finer"} & set(entry), "missing values, and finer outcomes")
            self.names.append(entry.get("nest", [entry["name"]]))
            labels = entry.get("tree") or entry.get("levels") or entry["bins"][:-1]
            self.leaves.append(list_paths(labels))
        for margin in document["margins"]:
            require(0 not in margin["counts"], "levels that do not occur")
            margins.append(self.find_depths(margin["features"]))
        nested = {m for m in margins for o in margins if m != o and all(map(int.__le__, m, o))}
        self.margins = [margin for margin in margins if margin not in nested]
        self.blocks = [m for m in self.margins if self.count_cells(m) > 1]  # 1.5

    def find_depths(self, names):
        places = [[k for k, name in enumerate(own, 1) if name in names] for own in self.names]
        return tuple(max(depths, default=0) for depths in places)

    def list_nodes(self, f, depth):
        return list(dict.fromkeys(leaf[:depth] for leaf in self.leaves[f]))

    def count_cells(self, depths):
        return math.prod(len(self.list_nodes(f, depth)) for f, depth in enumerate(depths))

    def is_fixed(self, depths):
        return not any(depths) or any(all(map(int.__le__, depths, m)) for m in self.margins)

    def residual_of(self, d, record):
        """What a record adds to the residual d, by cell (6.1)."""
        families = []
        for path, leaves, depth in zip(record, self.leaves, d, strict=True):
            parent, nodes = path[: max(depth - 1, 0)], {leaf[:depth] for leaf in leaves}
            family = [node for node in nodes if node[:-1] == parent] if depth else [()]
            less = Fraction(1, len(family)) if depth else 0
            families.append([(node, (node == path[:depth]) - less) for node in family])
        for cell in itertools.product(*families):
            yield (d, *(node for node, _ in cell)), math.prod(share for _, share in cell)

    def list_moves(self, seen, kind, a):
        """All changes of records if the published counts are large (4.4)."""
        deepest = enumerate(max(column) for column in zip(*seen, *self.margins, strict=True))
        records = list(itertools.product(*(self.list_nodes(f, depth) for f, depth in deepest)))
        require(math.comb(len(records) + a - 1, a) <= 8_000, "more changes than are listed")
        if kind == "ball":
            alike = defaultdict(list)
            for chosen in itertools.combinations_with_replacement(records, a):
                sums = [sorted(cell_of(record, m) for record in chosen) for m in self.blocks]
                alike[repr(sums)].append(Counter(chosen))
            for one, two in (p for s in alike.values() for p in itertools.combinations(s, 2)):
                yield {r: two[r] - one[r] for r in one | two if one[r] != two[r]}
        for x, y in itertools.product(records if kind == "exchange" else (), repeat=2):  # 1.8
            changed = [m for m in self.blocks if cell_of(x, m) != cell_of(y, m)]
            fits = [[r for r in records if cell_of(r, m) == cell_of(y, m)] for m in changed]
            shares = itertools.product(range(len(changed)), repeat=len(changed))
            for carriers, shared in itertools.product(itertools.product(*fits), shares):
                taken = defaultdict(set)  # by carrier; of two blocks it is one record if they share
                for carrier, margin, k in zip(carriers, changed, shared, strict=True):
                    taken[carrier, k] |= {f for f, d in enumerate(margin) if x[f][:d] != y[f][:d]}
                move = Counter([y])
                move.subtract([x, *(carrier for carrier, _ in taken)])
                for (carrier, _), fs in taken.items():
                    pairs = enumerate(zip(x, carrier, strict=True))
                    move[tuple(mine if f in fs else own for f, (mine, own) in pairs)] += 1
                yield {record: count for record, count in move.items() if count}

    def find_norms(self, promise, seen, entries):
        """The largest sum of absolute values and of weighted squares (4.1, 6.4) of a change."""
        (kind, a, times), length, square = promise, 0, 0
        for move in {frozenset(move.items()) for move in self.list_moves(seen, kind, a)}:
            change = Counter()
            for record, count in move:
                for entry, value in entries(record):
                    change[entry] += count * value
            length = max(length, sum(map(abs, change.values())))
            square = max(square, sum(seen[d] * v * v for (d, *_), v in change.items()))
        return length * times, square * times**2


def cell_of(record, depths):
    return tuple(path[:depth] for path, depth in zip(record, depths, strict=True))


def prove_counts(space, promise, entry):
    """A table, or residuals of tables, with the kind of the guarantee (6.3, 6.4)."""
    if "residuals" not in entry:
        table = space.find_depths(entry["features"])
        norms = space.find_norms(promise, {table: 1}, lambda r: [((table, *cell_of(r, table)), 1)])
        return apply_law(entry["noise"], *norms)
    parts = entry["residuals"]
    weights = {space.find_depths(each["features"]): 1 / Fraction(each["sigma2"]) for each in parts}
    for table in entry.get("tables", [entry]):
        depths = [range(depth + 1) for depth in space.find_depths(table["features"])]
        for d in itertools.product(*depths):
            require(space.is_fixed(d) or d in weights, "a residual that is not measured")
    add = functools.cache(lambda r: [entry for d in weights for entry in space.residual_of(d, r)])
    _, cost = space.find_norms(promise, weights, add)
    return ("mu_squared", cost) if entry["law"] == "rounded" else ("rho", cost / 2)


def prove_outcome(space, promise, key, asked, entry):
    """Statistics by groups (5)."""
    kind, a, times = promise
    asked = {**asked, **entry.get("query", {"kind": "sums"})}
    sets = [space.find_depths(names) for names in asked.get("by") or [[]]]
    is_plain = asked["kind"] == "sums" and "answered" not in asked
    require(is_plain and all(map(space.is_fixed, sets)), "such a statistic by groups")
    p, q, each = sum(space.count_cells(d) > 1 for d in sets), len(sets), a if kind == "ball" else 1
    many = a * q if kind == "ball" else q + p if key == "quantiles" else max(2 * p, q)
    if key == "quantiles":
        choices = len(asked["probabilities"]) * (3 if "level" in asked else 1)
        length, square = choices * many, choices * many * each
    else:
        steps = asked.get("grid", 1)
        length, square = steps * many, steps**2 * many * each
    return apply_law(entry["noise"], length * times, square * times**2)


def apply_law(noise, length, square):
    """The guarantee that follows from norms and an exact parameter (7.2, 7.5)."""
    law, number = noise["law"], Fraction(noise.get("sigma2") or noise.get("rate") or noise["scale"])
    proved = {
        "rounded gaussian": ("mu_squared", square / number),
        "discrete gaussian": ("rho", square / (2 * number)),
        "lattice gaussian": ("rho", square / (2 * number)),
        "laplace": ("epsilon", length / number),
        "exponential (zCDP)": ("rho", number**2 * square / 2),
        "exponential (GDP)": ("mu_squared", Fraction("1.5707963267948967") * number**2 * square),
    }
    require(noise["claim"] == "exact" and law in proved, f"noise of the law {law!r}")
    return proved[law]


def read_promise(space, document):
    """The kind of pairs, a, and how many exchanges in a row (2.5, 2.7, 3.1)."""
    stated, most = document["a"], document["a"].get("protection", {}).get("most", 1)
    are_disjoint = all(sum(map(bool, column)) <= 1 for column in zip(*space.blocks, strict=True))
    require(are_disjoint, "overlapping margins")
    if stated["kind"] == "exchange":
        return "exchange", stated["used"], most
    is_for_all = document["plan"].get("adjacency", "worst-case") == "worst-case"
    enough = min(most * (len(space.blocks) + 1), space.n) if is_for_all else 0
    require(stated["used"] >= enough, "an a below the rules")
    return "ball", stated["used"], 1


def prove_release(folder):
    """The kind of the stated guarantee, its number, and the number that the rules prove."""
    document, proved = json.loads((folder / "release.json").read_text("utf-8")), []
    left_out = {"combination", "answers", "distributions", "odds_ratios", "linked"} & set(document)
    require(not left_out and "link" not in document["dataspace"], "such results")
    space = Space(document["dataspace"])
    promise = read_promise(space, document)
    for key in ("tables", "products", "partitioned"):
        proved += [prove_counts(space, promise, entry) for entry in document.get(key, [])]
    for key in ("groups", "quantiles", "regressions"):
        requests = {request["name"]: request for request in document["plan"].get(key[:-1], [])}
        for entry in document.get(key, []):
            proved.append(prove_outcome(space, promise, key, requests[entry["name"]], entry))
    kind = {"gaussian": "mu_squared", "zcdp": "rho"}.get(document["guarantee"]["kind"], "epsilon")
    require({form for form, _ in proved} == {kind}, "a composed curve")
    return kind, Fraction(document["guarantee"][kind]), sum(value for _, value in proved)
