"""What a release guarantees: a reader written from the chapters of spec/ alone, without semidp.

Numbers in brackets are rules of the specification. What is left out raises `NotCovered`; some of it
is read by `further_reader`.
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


def read(folder):
    return json.loads((folder / "release.json").read_text("utf-8"))


def list_paths(tree):
    """The leaves of a tree of labels (11.3)."""
    if isinstance(tree, list):
        return [(label,) for label in tree]
    return [(label, *path) for label, below in tree.items() for path in list_paths(below)]


class Space:
    """The public facts: leaves of features as paths, and exact margins by depths (11.3).

    An outcome is one more feature.
    """

    def __init__(self, document, outcome=None, ends=()):
        entries = document["schema"]["feature"]
        unusual = any({"null_level", "finer"} & set(entry) for entry in entries)
        require(not unusual and not document["schema"]["structural_zero"], "unusual levels")
        labels = [e.get("tree") or e.get("levels") or e["bins"][:-1] for e in entries]
        self.leaves = [*map(list_paths, labels), [(end,) for end in ends]]
        self.names = [e.get("nest", [e["name"]]) for e in entries] + [[outcome]]
        require(all(0 not in m["counts"] for m in document["margins"]), "levels without records")
        margins = {self.find_depths(margin["features"]) for margin in document["margins"]}
        self.margins = [m for m in margins if not any(is_within(m, o) for o in margins - {m})]
        self.blocks = [m for m in self.margins if len(self.list_cells(m)) > 1]  # 1.5

    def find_depths(self, names):
        places = [[k for k, name in enumerate(own, 1) if name in names] for own in self.names]
        return tuple(max(depths, default=0) for depths in places)

    def list_nodes(self, f, depth):
        return list(dict.fromkeys(leaf[:depth] for leaf in self.leaves[f])) if depth else [()]

    def list_cells(self, *several):
        """All combinations of nodes at the deepest of some depths."""
        deepest = enumerate(map(max, zip(*several, strict=True)))
        return list(itertools.product(*itertools.starmap(self.list_nodes, deepest)))

    def is_fixed(self, depths):
        return not any(depths) or any(is_within(depths, m) for m in self.margins)

    def add_residual(self, d, record):
        """What a record adds to the residual d, by cell (6.1)."""
        families = []
        for f, (path, depth) in enumerate(zip(record, d, strict=True)):
            family = [n for n in self.list_nodes(f, depth) if n[:-1] == path[: max(depth - 1, 0)]]
            less = Fraction(1, len(family)) if depth else 0
            families.append([(node, (node == path[:depth]) - less) for node in family])
        for cell in itertools.product(*families):
            yield (d, *(node for node, _ in cell)), math.prod(share for _, share in cell)

    def list_moves(self, seen, kind, a):
        """All changes of records if the published counts are large (4.4)."""
        records, alike = self.list_cells(*seen, *self.blocks), defaultdict(list)
        require(math.comb(len(records) + a - 1, a) <= 8_000, "more changes than are listed")
        for chosen in itertools.combinations_with_replacement(records, a if kind == "ball" else 0):
            sums = [sorted(cell_of(record, m) for record in chosen) for m in self.blocks]
            alike[repr(sums)].append(Counter(chosen))
        for one, two in (p for s in alike.values() for p in itertools.combinations(s, 2)):
            yield {r: two[r] - one[r] for r in one | two if one[r] != two[r]}
        for x, y in itertools.product(records if kind == "exchange" else (), repeat=2):
            yield from self.list_exchanges(x, y, records)

    def list_exchanges(self, x, y, records):
        """The exchanges of two values, by who carries which block (1.8)."""
        changed = [m for m in self.blocks if cell_of(x, m) != cell_of(y, m)]
        fits = [[r for r in records if cell_of(r, m) == cell_of(y, m)] for m in changed]
        shares = itertools.product(range(len(changed)), repeat=len(changed))
        for carriers, shared in itertools.product(itertools.product(*fits), shares):
            gets = defaultdict(dict)  # by carrier; of two blocks it is one record if they share
            for carrier, margin, k in zip(carriers, changed, shared, strict=True):
                gets[carrier, k] |= {f: x[f] for f, d in enumerate(margin) if x[f][:d] != y[f][:d]}
            move = Counter([y])
            move.subtract([x, *(carrier for carrier, _ in gets)])
            for (carrier, _), new in gets.items():
                move[tuple(new.get(f, own) for f, own in enumerate(carrier))] += 1
            yield {record: count for record, count in move.items() if count}

    def find_norms(self, promise, seen, entries):
        """The largest sum of absolute values and of weighted squares (4.1, 6.4) of a change."""
        (kind, a, times), length, square = promise, 0, 0
        for move in {frozenset(move.items()) for move in self.list_moves(seen, kind, a)}:
            change = Counter()
            for record, count in move:
                change.update({entry: count * value for entry, value in entries(record).items()})
            length = max(length, sum(map(abs, change.values())))
            square = max(square, sum(seen[d] * v * v for (d, *_), v in change.items()))
        return length * times, square * times**2


def cell_of(record, depths):
    return tuple(path[:depth] for path, depth in zip(record, depths, strict=True))


def is_within(coarse, fine):
    return all(map(int.__le__, coarse, fine))


def prove_counts(space, promise, _, entry):
    """A table, or residuals of tables (6.3, 6.4, 6.9)."""
    if "residuals" not in entry:
        d = space.find_depths(entry["features"])
        norms = space.find_norms(promise, {d: 1}, lambda record: {(d, cell_of(record, d)): 1})
        return apply_law(entry["noise"], *norms)
    parts = entry["residuals"]
    weights = {space.find_depths(each["features"]): 1 / Fraction(each["sigma2"]) for each in parts}
    for table in entry.get("tables", [entry]):
        depths = [range(depth + 1) for depth in space.find_depths(table["features"])]
        for d in itertools.product(*depths):
            require(space.is_fixed(d) or d in weights, "a residual that is not measured")
    add = functools.cache(lambda r: dict(e for d in weights for e in space.add_residual(d, r)))
    proved = max(space.find_norms(promise, weights, add)[1], Fraction(entry["precision"]))
    return ("mu_squared", proved) if entry["law"] == "rounded" else ("rho", proved / 2)


def prove_outcome(space, promise, asked, entry):
    """Statistics of an outcome by groups (5); it is the last feature of the space."""
    sets = [space.find_depths(names) for names in asked.get("by") or [[]]]
    require(all(map(space.is_fixed, sets)) and asked.get("kind") != "moments", "such groups")
    if "probabilities" in asked:  # 5.4
        kind, a, times = promise
        choices = len(asked["probabilities"]) * (3 if "level" in asked else 1) * times
        swapped = sum(len(space.list_cells(d)) > 1 for d in sets)
        each, many = (a, a * len(sets)) if kind == "ball" else (1, swapped + len(sets))
        return apply_law(entry["noise"], choices * many, choices * many * each * times)
    table = (*map(max, *sets, space.find_depths([asked["column"]])),)

    def add(record):  # 5.3, found by 4.4
        return {(table, k, cell_of(record, d)): record[-1][0] for k, d in enumerate(sets)}

    return apply_law(entry["noise"], *space.find_norms(promise, {table: 1}, add))


# Kind of the guarantee, exact parameter, what follows from it and the norms (7.2, 7.5, 7.6).
LAWS = {
    "rounded gaussian": ("mu_squared", "sigma2", lambda number, _, square: square / number),
    "discrete gaussian": ("rho", "sigma2", lambda number, _, square: square / number / 2),
    "lattice gaussian": ("rho", "sigma2", lambda number, _, square: square / number / 2),
    "laplace": ("epsilon", "scale", lambda number, length, _: length / number),
    "k-norm": ("epsilon", "epsilon", lambda number, *_: number),
    "exponential (zCDP)": ("rho", "rate", lambda number, _, square: number**2 * square / 2),
    "exponential (GDP)": ("mu_squared", "rate", lambda number, _, s: 355 * number**2 * s / 226),
}


def apply_law(noise, *norms):
    require(noise["law"] in LAWS, "noise of such a law")
    kind, name, prove = LAWS[noise["law"]]
    return kind, prove(Fraction(noise[name]), *norms)


def read_promise(space, document):
    """The kind of pairs, a, and how many exchanges in a row (2.5, 3.1)."""
    stated, most = document["a"], document["a"].get("protection", {}).get("most", 1)
    is_disjoint = all(sum(map(bool, column)) < 2 for column in zip(*space.blocks, strict=True))
    require(is_disjoint and "link" not in document["dataspace"], "overlapping margins, links")
    is_for_all = document["plan"].get("adjacency", "worst-case") == "worst-case"
    enough = min(most * (len(space.blocks) + 1), document["dataspace"]["n"])
    require(not is_for_all or stated["used"] >= enough, "an a below the rules")
    return stated["kind"], stated["used"], most if stated["kind"] == "exchange" else 1


def prove_results(document):
    """The guarantee of every result of one release."""
    require(not {"answers", "distributions", "odds_ratios", "linked"} & {*document}, "such results")
    lists = [x for x in (*document.values(), *document["plan"].values()) if isinstance(x, list)]
    entries = [each for each in itertools.chain(*lists) if isinstance(each, dict)]
    asked = {each["name"]: each for each in entries if "column" in each}
    for entry in (entry for entry in entries if "noise" in entry):
        query = {**asked.get(entry["name"], {}), **entry.get("query", {})}
        space = Space(document["dataspace"], query.get("column"), (0, query.get("grid", 1)))
        proof = prove_outcome if "column" in query else prove_counts
        yield proof(space, read_promise(space, document), query, entry)


def prove_release(folder):
    """The kind of the stated guarantee, its number, and the number that the rules prove."""
    document = read(folder)
    proved = list(prove_results(document)) if document.get("plan") else []
    for inner in (folder / each["folder"] for each in document.get("combination", ())):  # 9.4
        require(all(read(inner)[key] == document[key] for key in ("dataspace", "a")), "other pairs")
        proved.append(prove_release(inner)[::2])
    stated = document["guarantee"]
    kind = {"gaussian": "mu_squared", "zcdp": "rho"}.get(stated["kind"], "epsilon")
    require({form for form, _ in proved} == {kind}, "a composed curve")
    return kind, Fraction(stated[kind]), sum(value for _, value in proved)
