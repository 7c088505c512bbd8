"""Recompute the privacy guarantee of a semidp release from the definitions.

    python semidp_check.py RELEASE [--seconds 10] [--format text|json]

This file shares no code with semidp and needs nothing but Python's standard library, so it can be
read, copied and run alone. It asks one question: does the guarantee that `release.json` states
follow from the exact totals, the promise (which datasets are compared) and the stated laws of the
noise? It does not ask whether the noise was drawn, nor whether the files follow from it.

The answer is `confirmed`, `confirmed by listing`, `weaker than stated`, `false` or `not covered`.
Numbers that decide are exact fractions; square roots, exponentials and normal probabilities are
enclosed between fractions and taken at the end that claims less privacy.

How to read it: 1 numbers, 2 the folder, 3 the public facts, 4 how many records change together,
5 moves and their worst costs, 6 noise, composition and conversions, 7 listing of small spaces,
8 hunting for a counterexample, 9 the verdict. Every rule is a `Rule` with the statement that it
relies on; `THEORY` numbers are the sections of the project's theory page.
"""

import argparse
import csv
import functools
import itertools
import json
import math
import random
import statistics
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path

# --- 1 numbers: fractions that enclose irrational ones -------------------------------------------

BITS = 256
UNIT = 1 << BITS
PI_DIGITS = (
    "31415926535897932384626433832795028841971693993751"
    "058209749445923078164062862089986280348253421170679"
)
PI_LOW = Fraction(int(PI_DIGITS), 10**100)
PI_HIGH = PI_LOW + Fraction(1, 10**100)
FAR = 38  # beyond so many standard deviations a normal tail is below 2^-1000


def root_bounds(x):
    """Fractions below and above the square root of a fraction x >= 0."""
    x = Fraction(x)
    low = math.isqrt((x.numerator << (2 * BITS)) // x.denominator)
    return Fraction(low, UNIT), Fraction(low + 1, UNIT)


def exp_bounds(x):
    """Fractions below and above exp(x): Taylor's series at x / 2^k, squared k times."""
    x = Fraction(x)
    if x < 0:
        low, high = exp_bounds(-x)
        return 1 / high, 1 / low
    halvings = max(0, math.ceil(x).bit_length() + 8)
    small = (x.numerator * UNIT) // (x.denominator << halvings)
    low = total = term = UNIT
    for k in itertools.count(1):
        term = term * small // (k * UNIT)
        total += term
        if not term:
            break
    # each term was cut by less than one unit, and so was x; what follows the last is below one
    low, high = total, total + 4 * k + 4
    for _ in range(halvings):
        low, high = low * low // UNIT, high * high // UNIT + 1
    return Fraction(low, UNIT), Fraction(high, UNIT)


def log_above(x):
    """A fraction above ln(x), by ln(x) <= g + x / exp(g) - 1 at a close guess g."""
    guess = Fraction(math.log(x))
    return guess + x / exp_bounds(guess)[0] - 1


def normal_bounds(x):
    """Fractions below and above Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/15 + ...)."""
    x = Fraction(x)
    if x < 0:
        low, high = normal_bounds(-x)
        return 1 - high, 1 - low
    if x > FAR:
        return 1 - Fraction(1, 1 << 1000), Fraction(1)
    exact = x.numerator * UNIT // x.denominator
    square = exact * exact // UNIT
    total = term = exact
    for k in itertools.count(1):
        term = term * square // ((2 * k + 1) * UNIT)
        total += term
        if not term:
            break
    # every factor was cut by less than one unit: k terms, each wrong by at most k parts of UNIT
    error = (k + 2) ** 2 * (total // UNIT + 2)
    low, high = exp_bounds(x * x / 2)
    root_low, root_high = root_bounds(2 * PI_LOW)[0], root_bounds(2 * PI_HIGH)[1]
    below = Fraction(1, 2) + Fraction(total, UNIT) / (high * root_high)
    above = Fraction(1, 2) + Fraction(total + error, UNIT) / (low * root_low) + Fraction(1, UNIT)
    return min(below, Fraction(1)), min(above, Fraction(1))


NORMAL = statistics.NormalDist()  # floats: to guess only, never to decide


# --- 2 the folder: from release.json to plain values ---------------------------------------------


class Unreadable(Exception):
    """The folder cannot be read, or contradicts itself."""


class NotCovered(Exception):
    """No rule here speaks about this part."""


@dataclass(frozen=True, eq=False)
class Feature:
    """A feature: the names of its depths, coarse to fine, and its leaves as paths of labels.

    `values` says for each outcome what a leaf is worth in steps of its grid. A private outcome that
    is no public feature has two leaves, its bounds: changes of sums are largest there.
    """

    names: tuple
    leaves: tuple
    values: dict = field(default_factory=dict)

    def nodes(self, depth):
        """The nodes at a depth, in order; a node is the path that leads to it."""
        return list(dict.fromkeys(leaf[:depth] for leaf in self.leaves))

    @functools.cached_property
    def families(self):
        """How many children every inner node has."""
        depths = range(1, len(self.names) + 1)
        return Counter(node[:-1] for depth in depths for node in self.nodes(depth))

    def siblings(self, node):
        """How many children the parent of a node has, the node included."""
        return self.families[node[:-1]]

    @functools.cached_property
    def paths(self):
        """Every leaf as a path of (label, number of siblings)."""
        return {
            leaf: tuple((label, self.siblings(leaf[: k + 1])) for k, label in enumerate(leaf))
            for leaf in self.leaves
        }

    def extremes(self, depth):
        """Of a feature with values: below each node the leaves with the least and the most."""
        chosen = set()
        for values in self.values.values():
            for node in self.nodes(depth):
                below = [leaf for leaf in self.leaves if leaf[:depth] == node]
                chosen |= {min(below, key=values.get), max(below, key=values.get)}
        return sorted(chosen)


@dataclass(frozen=True)
class Guarantee:
    """`mu`: value is mu squared. `rho`: value is rho. `epsilon`: value is epsilon, with delta, or
    the sum of the pure epsilons `terms` of a composition.
    """

    kind: str
    value: Fraction
    delta: Fraction = Fraction(0)
    terms: tuple = ()

    def __str__(self):
        if self.kind == "mu":
            return f"mu = {math.sqrt(self.value):.6g}"
        tail = f", delta = {float(self.delta):.3g}" if self.delta else ""
        return f"{self.kind} = {float(self.value):.6g}{tail}"

    def to_json(self):
        """Exact fractions as text, under the names that release.json uses."""
        name = {"mu": "mu_squared"}.get(self.kind, self.kind)
        document = {name: str(self.value)}
        return document | ({"delta": str(self.delta)} if self.kind == "epsilon" else {})


@dataclass(frozen=True)
class Query:
    """What was measured: the table at some depths (0: not in it), its residual, or the sums of an
    outcome (a feature, and the name of its values) over its cells.

    The residual r_d subtracts, along every feature with depth > 0, the mean of the siblings; it is
    measured times the product of the sibling counts, which makes it whole (THEORY 13).
    """

    kind: str
    depths: tuple
    outcome: tuple = None

    def role(self, f):
        """What a feature is in the query: a depth of a table or residual, or the outcome."""
        if self.outcome and self.outcome[0] == f:
            return ("value", self.depths[f], self.outcome[1])
        return ("residual" if self.kind == "residual" else "table", self.depths[f])

    def sees(self, f):
        """Whether a feature matters."""
        return any(self.role(f)[1:])


@dataclass(frozen=True)
class Noise:
    """Independent noise in every entry. `size` is sigma squared, or the scale of Laplace noise."""

    law: str
    size: Fraction


@dataclass
class Part:
    """One result of the release: what was measured with which noise, and what is stated of it."""

    name: str
    measured: list = field(default_factory=list)
    tables: list = field(default_factory=list)
    stated: list = field(default_factory=list)
    reason: str = ""


@dataclass
class Public:
    """What everybody knows: features, n, the exact margins, impossible combinations."""

    features: list
    n: int
    margins: list
    zeros: list


@dataclass(frozen=True)
class Promise:
    """Which datasets are compared: any `a` records, or one person's exchange.

    `everyone`: the release says that a suffices for every person, so a must be at least a(t).
    `most` is the largest number of records of one person, of whom there are `persons`.
    """

    kind: str
    a: int
    everyone: bool
    most: int = 1
    persons: int = 0


@dataclass
class Release:
    """All of the above, with the guarantee of the whole and what may be said besides."""

    public: Public
    promise: Promise
    parts: list
    stated: list
    reported: Guarantee
    notes: list


LAWS = {
    "rounded gaussian": ("rounded", "sigma2"),
    "discrete gaussian": ("discrete", "sigma2"),
    "lattice gaussian": ("lattice", "sigma2"),
    "laplace": ("laplace", "scale"),
}
READERS = {"tables": "read_tables", "products": "read_tables", "groups": "read_sums"}
RESULTS = {"regressions", "quantiles", "distributions", "odds_ratios", "answered"}


def read_release(folder):
    """Read release.json; say what contradicts itself."""
    try:
        document = json.loads((Path(folder) / "release.json").read_text(encoding="utf-8"))
        for key in ("plan", "dataspace"):
            if document.get(key) == {"file": f"{key}.json"}:  # large ones have files of their own
                document[key] = json.loads((Path(folder) / f"{key}.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise Unreadable(f"{folder} has no readable release.json: name a release") from None
    try:
        return _release(Path(folder), document)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise Unreadable(f"{folder}/release.json is damaged, or of another version") from None


def _release(folder, document):
    """The release as plain values."""
    plan = document.get("plan")
    if "units" in plan or "link" in document["dataspace"]:
        raise NotCovered("linked files have no rule yet")
    if not {"combination", "partition"}.isdisjoint(document):
        raise NotCovered("a combined release, or one made part by part, has no rule yet")
    public = read_public(document["dataspace"])
    planned = {_depths(public, names) for names in plan.get("invariants", [])}
    exact = {depths for depths, _ in public.margins}
    if not exact <= planned or not all(is_fixed(public, depths) for depths in planned):
        raise NotCovered("the exact totals are not those that the plan names")
    promise = read_promise(plan, document)
    parts = []
    for key, entries in document.items():
        if key in READERS:
            read = globals()[READERS[key]]
            parts += [read(folder, public, plan, entry) for entry in entries]
        elif key in RESULTS and entries:
            parts += [Part(entry["name"], reason=f"{key} have no rule yet") for entry in entries]
        elif isinstance(entries, list) and entries and isinstance(entries[0], dict):
            parts.append(Part(key, reason="results of a kind that is unknown here"))
    for part in parts:
        part.measured = [(replace(q, depths=pad(public, q.depths)), n) for q, n in part.measured]
        part.tables = [pad(public, depths) for depths in part.tables]
    stated = [read_guarantee(document["guarantee"]), read_budget(document["budget"])]
    delta = Fraction(str(plan.get("report_delta", document["report_delta"])))
    reported = Guarantee("epsilon", Fraction(document["epsilon"]), delta)
    notes = [] if document["private"] else ["note: noise from a seed, so it is not private"]
    return Release(public, promise, parts, stated, reported, notes)


def read_public(space):
    """Features, margins and structural zeros of `dataspace`."""
    features = [_feature(entry) for entry in space["schema"]["feature"]]
    public = Public(features, _whole(space["n"]), [], [])
    for margin in space["margins"]:
        depths = _depths(public, margin["features"])
        order = list(dict.fromkeys(_place(public, name)[0] for name in margin["features"]))
        axes = [public.features[f].nodes(depths[f]) for f in order]
        cells, counts = list(itertools.product(*axes)), [_whole(c) for c in margin["counts"]]
        if len(cells) != len(counts) or sum(counts) != public.n:
            raise Unreadable(f"the margin {margin['features']} does not fit its levels, or n")
        by_feature = sorted(range(len(order)), key=lambda i: order[i])
        ordered = {tuple(cell[i] for i in by_feature): c for cell, c in zip(cells, counts)}
        public.margins.append((depths, ordered))
    for zero in space["schema"].get("structural_zero", []):
        public.zeros.append([(*_place(public, name), set(zero[name])) for name in zero])
    _check_agreement(public)
    return public


def _feature(entry):
    """A feature from its tree, levels or bins; `finer` has the labels of an outcome below them."""
    names, leaves = (entry["name"],), []
    if "tree" in entry:
        names, leaves = tuple(entry["nest"]), _paths(entry["tree"])
    elif "levels" in entry:
        leaves = [(label,) for label in entry["levels"]]
    else:  # every edge begins a bin, but for an open end
        leaves = [(f"from {edge}",) for edge in entry["bins"] if edge != "inf"]
    if "tree" not in entry and (entry.get("null_level"),) not in [(None,), *leaves]:
        leaves.append((entry["null_level"],))
    if len(entry.get("finer", {})) == 1:
        ((name, below),) = entry["finer"].items()
        names = (*names, name)
        leaves = [(*leaf, label) for leaf, labels in zip(leaves, below) for label in labels]
    return Feature(names, tuple(leaves))


def _paths(tree):
    if isinstance(tree, dict):
        return [(label, *path) for label, below in tree.items() for path in _paths(below)]
    return [(label,) for label in tree]


def _place(public, name):
    """The number of the feature that a name belongs to, and the depth that it names."""
    for number, feature in enumerate(public.features):
        if name in feature.names:
            return number, feature.names.index(name) + 1
    raise NotCovered(f"{name!r} is no feature of the public schema")


def _depths(public, names):
    depths = [0] * len(public.features)
    for name in [names] if isinstance(names, str) else names:
        number, depth = _place(public, name)
        depths[number] = max(depths[number], depth)
    return tuple(depths)


def pad(public, depths):
    """A depth vector for the private outcomes too, which no table shows."""
    return depths + (0,) * (len(public.features) - len(depths))


def _whole(value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unreadable("a count is not a whole number of at least 0")
    return value


def _check_agreement(public):
    """Two margins must agree on what they share, or no dataset has both."""
    for (d, first), (e, second) in itertools.combinations(public.margins, 2):
        common = tuple(map(min, d, e))
        if roll_up(first, d, common) != roll_up(second, e, common):
            raise Unreadable("two exact margins contradict each other")


def roll_up(counts, depths, coarser):
    """Sum the counts of a margin over what a coarser one does not see."""
    named = [i for i, depth in enumerate(depths) if depth]
    total = Counter()
    for cell, count in counts.items():
        kept = [node[: coarser[i]] for i, node in zip(named, cell) if coarser[i]]
        total[tuple(kept)] += count
    return {cell: count for cell, count in total.items() if count}


def read_promise(plan, document):
    """The adjacency; the plan and the stated a must be about the same one."""
    asked, a = plan.get("adjacency", "worst-case"), document["a"]
    is_exchange, person = a.get("kind") == "exchange", a.get("protection", {})
    most = person.get("most", 1)
    if (is_exchange, most) != (asked == "exchange", plan.get("most", 1)):
        raise NotCovered("the plan and the stated a name different promises")
    if person.get("protect", "unit") != "unit":
        raise NotCovered("the promise is about members of units")
    persons = _whole(document.get("persons") or document["dataspace"]["n"])
    kind = "exchange" if is_exchange else "ball"
    everyone = asked in ("worst-case", "exchange")
    return Promise(kind, _whole(a["used"]), everyone, _whole(most), persons)


def _part(entry, planned, plan):
    """What every result states, and what the plan gave it to spend."""
    part = Part(entry["name"], stated=[read_guarantee(entry["guarantee"])])
    part.stated.append(read_budget(entry["budget"]))
    for asked in [each for each in planned if each["name"] == entry["name"]] or [plan]:
        if not {"mu", "rho", "epsilon"}.isdisjoint(asked):
            part.stated.append(read_budget(asked))
    return part


def read_sums(folder, public, plan, entry):
    """Sums, means or proportions of an outcome by sets of groups, measured as sums in steps."""
    (asked,) = [each for each in plan["group"] if each["name"] == entry["name"]]
    part, noise = _part(entry, [asked], plan), entry["noise"]
    if asked.get("answered") or "missing" in plan:
        part.reason = "outcomes that some records lack have no rule yet"
    elif noise["claim"] == "exact" and noise["mechanism"] == "no noise":
        column = asked["column"].partition("=")[0]
        part.tables = [_depths(public, [*names, column]) for names in asked["by"]]
    elif noise["claim"] != "exact" or noise.get("law") not in LAWS:
        part.reason = f"noise of the law {noise.get('law', noise['mechanism'])!r} has no rule"
    else:
        outcome = find_outcome(public, plan, asked)
        law, key = LAWS[noise["law"]]
        for names in asked["by"]:
            query = Query("sums", _depths(public, names), outcome)
            part.measured.append((query, Noise(law, _positive(noise[key]))))
    return part


def find_outcome(public, plan, asked):
    """The feature that an outcome is, and the name of its values; a new one if it is private."""
    column, _, level = asked["column"].partition("=")
    low, high = map(Fraction, asked.get("bounds", ["0", "1"]))
    steps = asked.get("grid", 1000) if "bounds" in asked else 1
    name, ends = f"{asked['column']} from {low} to {high} in {steps} steps", (("low",), ("high",))
    known = {each for feature in public.features for each in feature.names}
    if column not in known:
        nests = [set(each.get("nest", [])) for each in plan.get("feature", [])]
        if any(column in nest and nest & known for nest in nests):
            raise NotCovered(f"{column!r} is nested, and its values are not in the public schema")
        public.features.append(Feature((column,), ends))
        public.margins[:] = [((*depths, 0), counts) for depths, counts in public.margins]
    number, depth = _place(public, column)
    feature = public.features[number]
    feature.values[name] = values = {}
    for leaf in feature.leaves:
        label = leaf[depth - 1]
        try:
            value = Fraction(label == level) if level else Fraction(label)
            step = (min(max(value, low), high) - low) / (high - low) * steps
        except ValueError:
            step = Fraction(1, 2)
        if feature.leaves == ends:
            step = Fraction(steps * ends.index(leaf))
        if step.denominator != 1:
            raise NotCovered(f"the levels of {column!r} are no values on its grid")
        values[leaf] = int(step)
    return number, name


def read_tables(folder, public, plan, entry):
    """A table, or several tables that share residuals."""
    part = _part(entry, plan["table"], plan)
    noise, tables = entry["noise"], entry.get("tables", [entry])
    part.tables = [_depths(public, table["features"]) for table in tables]
    if noise["claim"] != "exact":
        part.reason = f"{noise['mechanism']} makes an ideal claim, which no rule confirms"
    elif noise["mechanism"] == "no noise":
        pass
    elif "residuals" in entry:
        law = {"rounded": "rounded", "discrete": "discrete"}[entry["law"]]
        for residual in entry["residuals"]:
            query = Query("residual", _depths(public, residual["features"]))
            part.measured.append((query, Noise(law, _positive(residual["sigma2"]))))
        _check_levels(folder, public, entry, part)
    elif noise.get("law") in LAWS:
        law, key = LAWS[noise["law"]]
        part.measured.append((Query("table", part.tables[0]), Noise(law, _positive(noise[key]))))
        _check_levels(folder, public, entry, part)
    else:
        part.reason = f"noise of the law {noise.get('law', noise['mechanism'])!r} has no rule"
    return part


def _positive(text):
    value = Fraction(text)
    if value <= 0:
        raise Unreadable("a scale of noise must be above 0")
    return value


def _check_levels(folder, public, entry, part):
    """The file of measurements shows the levels: every cell of a table; of a residual, centered
    over the levels that can occur, how many entries it has and by what they were multiplied.
    """
    stem = "measurements.csv" if entry["name"] == "table" else f"{entry['name']}-measurements.csv"
    if not (folder / stem).exists():
        return
    with open(folder / stem, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    (query, _), kept = part.measured[0], drop_empty_levels(public).features
    if query.kind == "table":
        named = [(feature, depth) for feature, depth in zip(public.features, query.depths) if depth]
        names = [name for feature, depth in named for name in feature.names[:depth]]
        cells = itertools.product(*(feature.nodes(depth) for feature, depth in named))
        known = {tuple(label for node in cell for label in node) for cell in cells}
        is_binned = any(label.startswith("from ") for cell in known for label in cell)
        found = {tuple(row[name] for name in names) for row in rows}
        agrees = len(found) == len(known) and (is_binned or found == known)
    else:
        known = Counter()
        for residual, (query, _) in zip(entry["residuals"], part.measured):
            trees = [(f, depth) for f, depth in zip(kept, query.depths) if depth]
            sizes = [[f.siblings(node) for node in f.nodes(depth)] for f, depth in trees]
            name = " × ".join(residual["features"])
            known += Counter((name, math.prod(c)) for c in itertools.product(*sizes))
        agrees = known == Counter((row["residual"], int(row["scale"])) for row in rows)
    if not agrees:
        raise Unreadable(f"the measured entries of {entry['name']} are not those of its levels")


def read_guarantee(document):
    """A stated guarantee; composed curves are checked through their parts."""
    kind = document["kind"]
    if kind == "gaussian":
        return Guarantee("mu", Fraction(document["mu_squared"]))
    if kind == "zcdp":
        return Guarantee("rho", Fraction(document["rho"]))
    if kind == "approximate" and document.get("group", 1) == 1:
        return Guarantee("epsilon", Fraction(document["epsilon"]), Fraction(document["delta"]))
    if kind == "composed":
        parts = [read_guarantee(part) for part in document["parts"]]
        if {(part.kind, part.delta) for part in parts} == {("epsilon", 0)}:
            return compose(parts)
    raise NotCovered(f"a guarantee of the kind {kind!r}")


def read_budget(document):
    """A budget: texts are exact, and floats are read up to their last digits."""

    def number(key):
        value = Fraction(document.get(key, 0))
        return value * (1 + Fraction(1, 10**12)) if isinstance(document.get(key), float) else value

    if "mu" in document:
        return Guarantee("mu", number("mu") ** 2)
    if "rho" in document:
        return Guarantee("rho", number("rho"))
    return Guarantee("epsilon", number("epsilon"), number("delta"))


# --- 3 the public facts: what can occur, and what the totals fix ---------------------------------


def kept_feature(public, number):
    """A feature without the levels that a published count of 0 rules out (THEORY 12)."""
    feature, leaves = public.features[number], public.features[number].leaves
    for depths, counts in public.margins:
        if depths[number]:
            alone = tuple(d if f == number else 0 for f, d in enumerate(depths))
            inhabited = roll_up(counts, depths, alone)
            leaves = [leaf for leaf in leaves if (leaf[: depths[number]],) in inhabited]
    return replace(feature, leaves=tuple(leaves))


def drop_empty_levels(public):
    """The same public facts over the levels that can occur."""
    features = [kept_feature(public, number) for number in range(len(public.features))]
    margins = [(d, {c: k for c, k in counts.items() if k}) for d, counts in public.margins]
    return replace(public, features=features, margins=margins)


def value_of(record, depths):
    """The cell of a record in the table at some depths."""
    return tuple(leaf[:depth] for leaf, depth in zip(record, depths) if depth)


def is_possible(public, record):
    """Whether every published count of the record is positive and no structural zero forbids it."""
    if any(value_of(record, depths) not in counts for depths, counts in public.margins):
        return False
    for zero in public.zeros:
        if all(record[f][depth - 1] in labels for f, depth, labels in zero):
            return False
    return True


def maximal_margins(public):
    """The margins that no other one contains: `state` goes where `county` or `state x sex` is."""
    kept = []
    for number, (depths, counts) in enumerate(public.margins):
        for other, (larger, _) in enumerate(public.margins):
            is_below = all(map(int.__le__, depths, larger))
            if is_below and (depths != larger or other < number):
                break
        else:
            if any(depths):
                kept.append((depths, counts))
    return kept


def are_disjoint(margins):
    """Whether no feature (whole chain) lies in two margins."""
    used = [f for depths, _ in margins for f, depth in enumerate(depths) if depth]
    return len(used) == len(set(used))


def is_fixed(public, depths):
    """Whether a table follows from one exact margin, or from n."""
    margins = [d for d, _ in public.margins] + [(0,) * len(depths)]
    trivial = [len(f.nodes(d)) == 1 for f, d in zip(public.features, depths)]
    visible = tuple(0 if flat else d for d, flat in zip(depths, trivial))
    return any(all(map(int.__le__, visible, d)) for d in margins)


# --- 4 reach: how many records change together ---------------------------------------------------


def reach_bounds(public):
    """Return bounds of a(t), the fewest records that always suffice to turn anybody into anybody
    possible, and the rule.

    *Reach* (THEORY 2, 22.1). Disjoint blocks, no structural zeros, q blocks with two inhabited
    values, m_b the smallest positive count of block b: a(t) <= q + 1, with equality if and only if
    the m_b sum to at most n - 1. *Junction tree*: decomposable margins with m cliques, no zeros:
    a(t) <= m + 1. *Graver*: any zeros, two blocks with r and c values: a(t) <= 1 + min(r, c); one
    block: a(t) <= 2. Nothing exact but n: a(t) = 1.
    """
    margins = [(d, counts) for d, counts in maximal_margins(public) if len(counts) > 1]
    q = len(margins)
    if not q:
        return 1, 1, "reach: no published value changes, a(t) = 1"
    if are_disjoint(margins) and not public.zeros:
        if sum(min(counts.values()) for _, counts in margins) <= public.n - 1:
            return q + 1, q + 1, "reach: disjoint blocks, a(t) = q + 1"
        return 1, q, "reach: disjoint blocks with overlapping rarest values, a(t) <= q"
    if not public.zeros and is_decomposable([d for d, _ in margins]):
        return 1, q + 1, "reach: junction tree, a(t) <= cliques + 1"
    if q <= 2 and are_disjoint(margins):
        least = min((len(counts) for _, counts in margins), default=1) if q == 2 else 1
        return 1, 1 + least, "reach: Graver degree of two blocks with structural zeros"
    return 1, None, "reach: none for margins in a circle or with structural zeros"


def is_decomposable(vectors):
    """Whether margins form a junction tree when depth k of a feature counts as k variables: take
    away a margin whose overlap with all others lies in one of them, until one is left.
    """
    sets = [{(f, k) for f, d in enumerate(v) for k in range(1, d + 1)} for v in vectors]
    while len(sets) > 1:
        for number, leaf in enumerate(sets):
            others = sets[:number] + sets[number + 1 :]
            overlap = leaf & set().union(*others)
            if any(overlap <= other for other in others):
                sets = others
                break
        else:
            return False
    return True


# --- 5 moves and their worst costs ---------------------------------------------------------------
#
# A pair of the promise differs in a few records. A *move* lists them before (sign -1) and after
# (sign +1). On every feature the records have *letters*: records with the same letter have the same
# leaf there; conditions say which letters must agree or differ at a published depth. The worst cost
# over all ways to put letters on leaves is at least that of every real pair, because every real
# pair is one of these ways. (Small counts of t are ignored: that can only make it larger.)


@dataclass(frozen=True)
class Move:
    """`slots`: (sign, letter on each feature); `same`, `differ`: (feature, two letters, depth)."""

    slots: tuple
    same: tuple
    differ: tuple


class TooMany(Exception):
    """More patterns than the checker lists; a coarser rule is used."""


def exchange_moves(blocks, seen):
    """The moves of one exchange, as a table over the features `seen` sees them.

    *Exchange* (THEORY 11). One person goes from x to a possible y. For every block whose published
    tuples differ between x and y, a carrier (another record, with y's whole tuple there) takes x's
    leaf on exactly those features of the block whose published nodes differ. One carrier may serve
    several blocks. Nothing else changes. The reverse direction has the same cost.
    """
    touched = [{f: d for f, d in enumerate(b) if d and f in seen} for b in blocks]
    touched = [block for block in touched if block]
    x, y = 0, 1
    for changed in itertools.product(*(subsets(block) for block in touched)):
        with_carrier = [number for number, features in enumerate(changed) if features]
        for carriers in set_partitions(with_carrier):
            same, differ = [], []
            for block, features in zip(touched, changed):
                for f, depth in block.items():
                    (differ if f in features else same).append((f, x, y, depth))
            slots = [(-1, dict.fromkeys(seen, x)), (1, dict.fromkeys(seen, y))]
            for letter, numbers in enumerate(carriers, start=2):
                taken = [f for number in numbers for f in changed[number]]
                slots.append((-1, dict.fromkeys(seen, letter)))
                slots.append((1, {f: x if f in taken else letter for f in seen}))
                for number in numbers:
                    same += [(f, y, letter, depth) for f, depth in touched[number].items()]
            yield Move(tuple(slots), tuple(same), tuple(differ))


def ball_move(margins, seen, orders):
    """Any a records change: x_i becomes y_i, and every published margin of the y_i is that of the
    x_i, so some order of the records matches them: y_i has the published value of x_order[i].
    """
    a = len(orders[0]) if orders else 0
    slots = [(-1, dict.fromkeys(seen, i)) for i in range(a)]
    slots += [(1, dict.fromkeys(seen, a + i)) for i in range(a)]
    same = []
    for block, order in zip(margins, orders):
        for i, f in itertools.product(range(a), seen):
            if block[f]:
                same.append((f, order[i], a + i, block[f]))
    return Move(tuple(slots), tuple(same), ())


def ball_moves(margins, seen, a):
    """All such moves (THEORY 3); the order of one margin can be taken as it is."""
    touched = [block for block in margins if any(block[f] for f in seen)]
    first = [tuple(range(a))]
    others = [list(itertools.permutations(range(a)))] * (len(touched) - 1)
    for orders in itertools.product(first, *others):
        yield ball_move(touched, seen, orders)


def subsets(items):
    """All subsets of a collection, the empty one included."""
    items = list(items)
    for size in range(len(items) + 1):
        yield from itertools.combinations(items, size)


def set_partitions(items):
    """All ways to split a list into groups."""
    items = list(items)
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for groups in set_partitions(rest):
        yield [[first], *groups]
        for number, group in enumerate(groups):
            yield [*groups[:number], [first, *group], *groups[number + 1 :]]


def tree_shape(feature, height, node=()):
    """The tree below a node, down to a depth, as nested tuples: siblings can be renamed."""
    depth = len(node)
    if depth == height:
        return ()
    children = {leaf[: depth + 1] for leaf in feature.leaves if leaf[:depth] == node}
    return tuple(sorted(tree_shape(feature, height, child) for child in children))


def placements(tree, letters):
    """Every way, up to renaming siblings, to put letters on leaves of a tree. A place is a path of
    (child, number of siblings).
    """
    if not tree:
        yield dict.fromkeys(letters, ())
        return
    shapes = Counter(tree)
    for groups in set_partitions(letters):
        if len(groups) > len(tree):
            continue
        for chosen in itertools.product(shapes, repeat=len(groups)):
            if any(often > shapes[shape] for shape, often in Counter(chosen).items()):
                continue
            below = [list(placements(shape, group)) for shape, group in zip(chosen, groups)]
            for combination in itertools.product(*below):
                place = {}
                for child, paths in enumerate(combination):
                    step = (child, len(tree))
                    place |= {letter: (step, *path) for letter, path in paths.items()}
                yield place


def kernel(feature, role, first, second):
    """How much two records of opposite sign cancel along one feature; places are paths of (label,
    number of siblings).

    Table: 1 if they share the node at this depth. Residual: the inner product of two centred unit
    vectors, 1 - 1/c for the same node, -1/c for siblings, 0 if they part above. Depth 0: 1.
    Outcome: the product of the two values, if they share the group at this depth.
    """
    kind, depth, *outcome = role
    if outcome:
        values = feature.values[outcome[0]]
        worth = [values[tuple(label for label, _ in place)] for place in (first, second)]
        return worth[0] * worth[1] * (first[:depth] == second[:depth])
    together = int(first[:depth] == second[:depth])
    if kind == "table" or depth == 0:
        return together
    if first[: depth - 1] != second[: depth - 1]:
        return 0
    return together - Fraction(1, first[depth - 1][1])


class WorstCost:
    """The largest weighted cost of a list of moves, by listing all placements of their letters.

    The cost of a move m is the sum over measured queries of weight x |query(m)|^2, and
    |query(m)|^2 is the sum over pairs of records of sign x sign x the product of kernels. All in
    whole numbers: kernels times the sibling counts, weights times a common denominator.
    """

    def __init__(self, features, weighted, limit=400_000):
        self.features, self.limit = features, limit
        self.queries = [query for query, _ in weighted]
        self.seen = [f for f in range(len(features)) if any(q.sees(f) for q in self.queries)]
        self.common = {}
        for f, feature in enumerate(features):
            for node, size in feature.families.items():
                key = (f, len(node) + 1)
                self.common[key] = math.lcm(self.common.get(key, 1), size)
        exact = []
        for query, weight in weighted:
            scales = [self.scale(f, query.role(f)) for f in self.seen]
            exact.append(Fraction(weight) / math.prod(scales))
        self.denominator = math.lcm(*(weight.denominator for weight in exact))
        self.weights = [int(weight * self.denominator) for weight in exact]

    def scale(self, f, role):
        """What makes the kernels of a feature whole."""
        return self.common[f, role[1]] if role[0] == "residual" and role[1] else 1

    def largest(self, moves):
        """The largest cost over all moves; of a single table also its largest sum of sizes."""
        results = [self._largest_of(move) for move in moves]
        cost = Fraction(max((cost for cost, _ in results), default=0), self.denominator)
        return cost, max((length for _, length in results), default=0)

    def _spend(self, steps):
        self.limit -= steps
        if self.limit < 0:
            raise TooMany

    def _largest_of(self, move):
        """A table of costs for every set of features that queries have; then the best choice."""
        signs = [sign for sign, _ in move.slots]
        pairs = list(itertools.combinations_with_replacement(range(len(signs)), 2))
        factors = [signs[i] * signs[j] * (1 + (i != j)) for i, j in pairs]
        options = {f: self._options(f, move, pairs) for f in self.seen}
        if not all(options.values()):
            return 0, 0
        groups, tables, longest = {}, [], 0
        for query, weight in zip(self.queries, self.weights):
            features = tuple(f for f in self.seen if query.sees(f))
            groups.setdefault(features, []).append((query, weight))
        for features, queries in groups.items():
            steps = len(queries) * math.prod(len(options[f]) for f in features)
            self._spend(steps * len(pairs) // 20)
            table = {}
            for chosen in itertools.product(*(range(len(options[f])) for f in features)):
                table[chosen] = 0
                for query, weight in queries:
                    product = [1] * len(pairs)
                    for f, number in zip(features, chosen):
                        option = options[f][number][query.role(f)]
                        product = list(map(int.__mul__, product, option))
                    table[chosen] += weight * sum(map(int.__mul__, product, factors))
                if len(self.queries) == 1 and query.kind == "table":
                    longest = max(longest, _sum_of_sizes(product, pairs, signs))
            tables.append((features, table))
        return self._best_choice(options, tables), longest

    def _best_choice(self, options, tables):
        """The largest sum of one entry of each table, where tables share the choices of features.
        `known` has, for every table, the best entry that begins with the choices made so far.
        """
        order = sorted(options, key=lambda f: len(options[f]))
        known = []
        for features, table in tables:
            ranks = sorted(features, key=order.index)
            places = [features.index(f) for f in ranks]
            best = {}
            for chosen, cost in table.items():
                ordered = tuple(chosen[place] for place in places)
                for size in range(len(ordered) + 1):
                    best[ordered[:size]] = max(best.get(ordered[:size], cost), cost)
            known.append((ranks, best))
        best = [0]

        def extend(choices):
            self._spend(len(known) // 2)
            bound = 0
            for ranks, costs in known:
                bound += costs[tuple(choices[f] for f in ranks if f in choices)]
            if bound <= best[0]:
                return
            if len(choices) == len(order):
                best[0] = bound
                return
            f = order[len(choices)]
            for number in range(len(options[f])):
                extend({**choices, f: number})

        extend({})
        return best[0]

    def _options(self, f, move, pairs):
        """For every placement along one feature, the kernels of all pairs of records."""
        feature, letters = self.features[f], [letter_of[f] for _, letter_of in move.slots]
        same = [(a, b, depth) for g, a, b, depth in move.same if g == f]
        differ = [(a, b, depth) for g, a, b, depth in move.differ if g == f]
        roles = list({query.role(f): None for query in self.queries})
        has_values = any(role[0] == "value" for role in roles)
        deepest = max([depth for _, _, depth in (*same, *differ)] + [role[1] for role in roles])
        joined = {letter: letter for letter in set(letters)}
        for a, b, depth in same:
            if depth == (len(feature.names) if has_values else deepest):  # one letter will do
                old, new = joined[b], joined[a]
                joined = {k: new if v == old else v for k, v in joined.items()}
        distinct, options = sorted(set(joined.values())), set()
        if has_values:
            ends = [feature.paths[leaf] for leaf in feature.extremes(deepest)]
            chosen = itertools.product(ends, repeat=len(distinct))
            places = (dict(zip(distinct, paths)) for paths in chosen)
        else:
            places = placements(tree_shape(feature, deepest), distinct)
        for place in places:
            self._spend(1 + len(pairs) // 10)
            at = {letter: place[joined[letter]] for letter in joined}
            if any(at[a][:depth] != at[b][:depth] for a, b, depth in same):
                continue
            if any(at[a][:depth] == at[b][:depth] for a, b, depth in differ):
                continue
            option = []
            for role in roles:
                scale = self.scale(f, role)
                row = (kernel(feature, role, at[letters[i]], at[letters[j]]) for i, j in pairs)
                option.append(tuple(int(k * scale) for k in row))
            options.add(tuple(option))
        return [dict(zip(roles, option)) for option in options]


def _sum_of_sizes(state, pairs, signs):
    """The sum of absolute changes of a table: records with kernel 1 are in the same cell."""
    cell = list(range(len(signs)))
    for (i, j), together in zip(pairs, state):
        if together:
            cell[j] = min(cell[j], cell[i])
    totals = Counter()
    for number, sign in zip(cell, signs):
        totals[number] += sign
    return sum(map(abs, totals.values()))


class Costs:
    """Upper bounds, by rules, of how far pairs of the promise move what was measured."""

    def __init__(self, public, promise, a):
        self.public, self.promise, self.a = public, promise, a
        self.margins = [d for d, counts in maximal_margins(public) if len(counts) > 1]
        self.rules = {}
        self.norms = functools.cache(self._norms)

    def bound(self, weighted):
        """The largest sum of weight x |query|^2 over the pairs of the promise.

        *Residuals* (THEORY 13, 22.5): at most the sum of the worst costs of each query; all
        queries at once where the patterns are few.
        """
        apart = sum(self.norms(query)[1] * weight for query, weight in weighted)
        if len(weighted) == 1 or not apart:
            return apart
        together = [(query, weight) for query, weight in weighted if self.norms(query)[1]]
        bounds = {"the sum of single costs": apart, **self._listed_bounds(together)}
        return self._least(bounds, "residuals by")

    def _least(self, bounds, what):
        """The least of some bounds; its rule is noted."""
        rule = min(bounds, key=bounds.get)
        self.rules[f"{what} {rule}"] = None
        return bounds[rule]

    def _norms(self, query):
        """Bounds of the sum of absolute changes of a query (None: unknown), and of |query|^2.

        *Exchange norms* (THEORY 11, 22.3): D1 <= 2(q + 1), D2^2 <= q^2 + q + 2 for a table that
        touches q blocks; m records are m exchanges one after another, m times as long. *Ball
        norms*: see `ball_norms`. A residual is no longer than its table.
        """
        if query.kind != "sums" and is_fixed(self.public, query.depths):
            self.rules["totals: what lies below an exact margin does not move"] = None
            return 0, Fraction(0)
        touched = sum(1 for m in self.margins if any(d and e for d, e in zip(m, query.depths)))
        times = self.promise.most if self.promise.kind == "exchange" else 1
        if query.kind == "sums":
            length, square = self._sum_norms(query)
        elif self.promise.kind == "exchange":
            length, square = 2 * (touched + 1), touched**2 + touched + 2
        else:
            length, square = ball_norms(self.public, self.margins, query.depths, self.a)
        lengths = []
        bounds = self._listed_bounds([(query, Fraction(1))], lengths)
        if square is not None:
            bounds["formulas"] = Fraction(square * times**2)
        if not bounds:
            raise NotCovered("sums of an outcome that exact totals show, with too many patterns")
        if length is not None:
            length = min([length, *(found for found in lengths if query.kind == "table")]) * times
        return length, self._least(bounds, f"{self.promise.kind} norms ({query.kind}) by")

    def _sum_norms(self, query):
        """*Sums* of an outcome in [l, u] by groups whose counts are exact (THEORY 8, 11, 22.4): any
        a records move them by a(u - l); one exchange moves D1 by 2(u - l) and D2^2 by 2(u - l)^2,
        by half of that where there is one group. If the groups are not exact, or for exchanges an
        exact total shows part of the outcome, only patterns tell.
        """
        number, name = query.outcome
        worth = self.public.features[number].values[name].values()
        width, a = max(worth) - min(worth), self.a
        if not is_fixed(self.public, query.depths):
            return None, None
        if self.promise.kind == "ball":
            return a * width, (a * width) ** 2
        if any(m[number] for m in self.margins):
            return None, None
        several = 1 + (not is_fixed(replace(self.public, margins=[]), query.depths))
        return several * width, several * width**2

    def _listed_bounds(self, weighted, lengths=None):
        """Bounds by listing placements: of all moves, and for the ball of single moves.

        *Pairing* (THEORY 18): pair the records of a move by one margin; then the move is a sum of
        a single moves that keep this margin, and its norm is at most a times the worst of them.
        """
        bounds, seen = {}, WorstCost(self.public.features, weighted).seen
        if self.promise.kind == "exchange":
            options = [("patterns", self.promise.most, exchange_moves(self.margins, seen))]
        else:
            options = [("patterns", 1, ball_moves(self.margins, seen, self.a))] * (self.a <= 4)
            for margin in [*self.margins, (0,) * len(self.public.features)]:
                single = [ball_move([margin], seen, [(0,)])]
                options.append((f"pairing along margin {margin}", self.a, single))
        for rule, times, moves in options:
            try:
                cost, length = WorstCost(self.public.features, weighted).largest(moves)
            except TooMany:
                continue
            bounds[rule] = cost * times**2
            if lengths is not None and rule == "patterns":
                lengths.append(length)
        return bounds


def ball_norms(public, margins, depths, a):
    """D1 and D2^2 of a table when any a records change (THEORY 3, 22.2).

    Roll the margins up to the table. A feature that the table shows deeper than every margin is
    unpublished: D2^2 <= 2a^2. Otherwise, with w margins that together show every feature (at least
    their fractional cover number), k = floor(a(1 - 1/w)), g(s) = floor(a/s) s^2 + (a mod s)^2:
    D2^2 <= max g(s) + g(u) over 1 <= u <= s <= k, s + u <= a.
    """
    visible = [f for f, d in enumerate(depths) if d and len(public.features[f].nodes(d)) > 1]
    if not all(any(m[f] >= depths[f] for m in margins) for f in visible):
        return 2 * a, 2 * a * a
    w = sum(1 for m in margins if any(m[f] >= depths[f] for f in visible))
    k = a - math.ceil(Fraction(a, w))

    def most(s):
        return (a // s) * s * s + (a % s) ** 2

    options = [most(s) + most(u) for s in range(1, k + 1) for u in range(1, s + 1) if s + u <= a]
    return (2 * a if options else 0), max(options, default=0)


# --- 6 noise, composition, conversions -----------------------------------------------------------


def guarantee_of(law, cost, length):
    """What noise of a law gives when no pair costs more (THEORY 22.6).

    Rounded Gaussian noise on whole numbers is the Gaussian mechanism, rounded: mu = D2/sigma.
    Discrete Gaussian noise, also on the lattice of tables with the exact totals (THEORY 4.5):
    rho = D2^2/(2 sigma^2), and never mu. Discrete Laplace noise: epsilon = D1/scale.
    """
    if law == "rounded":
        return Guarantee("mu", cost)
    if law == "laplace":
        return Guarantee("epsilon", length)
    return Guarantee("rho", cost / 2)


def prove_part(part, costs):
    """The guarantee of one part, from bounds on how far its queries move."""
    weighted = [(query, 1 / noise.size) for query, noise in part.measured]
    check_everything_measured(part, costs)
    if not weighted:
        return Guarantee("mu", Fraction(0))
    law = part.measured[0][1].law
    if law == "laplace":
        lengths = [(costs.norms(query)[0], weight) for query, weight in weighted]
        if any(length is None for length, _ in lengths):
            raise NotCovered("Laplace noise on sums of an outcome that exact totals show")
        return guarantee_of(law, 0, sum(length * weight for length, weight in lengths))
    return guarantee_of(law, costs.bound(weighted), 0)


def check_everything_measured(part, costs):
    """Every residual of every published table is measured, or does not move (THEORY 13, 22.5).

    Without noise it must lie below an exact margin; under exchange its cost may also be 0. A given
    a so small that nothing moves is no reason to publish a table without noise.
    """
    measured = {query.depths for query, _ in part.measured if query.kind == "residual"}
    measured |= {
        d for query, _ in part.measured if query.kind == "table" for d in below(query.depths)
    }
    for depths in {d for table in part.tables for d in below(table)} - measured:
        if is_fixed(costs.public, depths) or is_centred_away(costs.public, depths):
            continue
        query = Query("residual", depths)
        if costs.promise.kind != "exchange" or costs.norms(query)[1]:
            raise NotCovered("a residual is neither measured nor fixed by an exact total")


def below(depths):
    """All depth vectors below one."""
    return itertools.product(*(range(d + 1) for d in depths))


def is_centred_away(public, depths):
    """Whether every node at the depth of some feature is an only child: its residual is 0."""
    for feature, depth in zip(public.features, depths):
        if depth and all(feature.siblings(node) == 1 for node in feature.nodes(depth)):
            return True
    return False


def compose(guarantees):
    """Independent measurements under one promise: mu^2 adds to mu^2, rho to rho, epsilon to
    epsilon; mixtures as rho = mu^2/2 = epsilon^2/2 (THEORY 1, 22.6).
    """
    parts = [g for g in guarantees if g.value or g.delta] or [Guarantee("mu", Fraction(0))]
    if len({g.kind for g in parts}) > 1:
        return Guarantee("rho", sum(as_rho(g) for g in parts))
    terms = tuple(term for g in parts for term in g.terms or (g.value,))
    delta = sum((g.delta for g in parts), Fraction(0))
    return Guarantee(parts[0].kind, sum(g.value for g in parts), delta, terms)


def as_rho(g):
    """The rho that a guarantee implies."""
    if g.kind == "epsilon" and g.delta:
        raise NotCovered("epsilon with delta inside a composition")
    return {"mu": g.value / 2, "rho": g.value, "epsilon": g.value**2 / 2}[g.kind]


def implies(proved, stated):
    """Whether a proved guarantee implies a stated one, by the conversions of THEORY 1."""
    if stated.kind == proved.kind and stated.kind != "epsilon":
        return proved.value <= stated.value
    if not proved.value and not proved.delta:
        return True
    if stated.kind == "rho":
        return proved.delta == 0 and as_rho(proved) <= stated.value
    if stated.kind == "mu":
        return False  # neither rho nor epsilon is turned into mu here
    if proved.kind == "mu":
        return gaussian_delta(proved.value, stated.value) <= stated.delta
    if proved.kind == "rho":
        return concentrated_holds(proved.value, stated.value, stated.delta)
    if proved.delta or not stated.delta:
        if len(stated.terms) < 2:
            return proved.delta <= stated.delta and proved.value <= stated.value
        # a composition is implied term by term, the largest first
        pairs = itertools.zip_longest(sorted_terms(proved), sorted_terms(stated), fillvalue=0)
        return proved.delta <= stated.delta and all(mine <= theirs for mine, theirs in pairs)
    return pure_delta(proved, stated.value) <= stated.delta


def sorted_terms(g):
    """The pure epsilons of a composition, the largest first."""
    return sorted(g.terms or (g.value,), reverse=True)


def pure_delta(g, epsilon):
    """An upper bound of delta(epsilon) for composed pure epsilons: each is at most a coin that
    tells the truth with odds exp(e), so sum P(coins) (1 - exp(epsilon - loss))+ is exact.
    """
    terms = g.terms or (g.value,)
    if len(terms) > 12:
        terms = (g.value,)
    total = Fraction(0)
    for signs in itertools.product((1, -1), repeat=len(terms)):
        loss = sum(sign * term for sign, term in zip(signs, terms))
        if loss > epsilon:
            odds = [exp_bounds(sign * term) for sign, term in zip(signs, terms)]
            chance = math.prod(high / (1 + high) for _, high in odds)
            total += chance * (1 - exp_bounds(epsilon - loss)[0])
    return total


def gaussian_delta(mu_squared, epsilon):
    """An upper bound of delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 -
    epsilon/mu), which grows with mu.
    """
    mu = root_bounds(mu_squared)[1]
    first = normal_bounds(mu / 2 - epsilon / mu)[1]
    second = normal_bounds(-mu / 2 - epsilon / mu)[0]
    return first - exp_bounds(epsilon)[0] * second


def concentrated_holds(rho, epsilon, delta):
    """Whether some order x > 1 shows rho x + ln(1/(x delta))/(x - 1) + ln(1 - 1/x) <= epsilon.

    Floats find x; bounds of the logarithms decide.
    """
    if not delta:
        return False
    r, tail = float(rho), -math.log(float(delta))

    def value(x):
        return r * x + (tail - math.log(x)) / (x - 1) + math.log1p(-1 / x)

    low, high = 0.0, 60.0  # x - 1 = exp(log), by golden section on a function with one valley
    for _ in range(200):
        left, right = low + (high - low) * 0.382, low + (high - low) * 0.618
        if value(1 + math.exp(left - 20)) < value(1 + math.exp(right - 20)):
            high = right
        else:
            low = left
    x = 1 + Fraction(math.exp(low - 20)).limit_denominator(10**9)
    if x == 1:
        return False
    logarithm = log_above(1 / (x * delta)) / (x - 1) + log_above(1 - 1 / x)
    return rho * x + logarithm <= epsilon


# --- 7 listing: all datasets and pairs of a small space ------------------------------------------


def relevant_records(public, measured, limit=400):
    """All possible records over the features that margins or queries see; None if too many."""
    vectors = [d for d, _ in public.margins] + [query.depths for query, _ in measured]
    outcomes = {query.outcome[0] for query, _ in measured if query.outcome}
    leaves = []
    for number, feature in enumerate(public.features):
        deepest = max((v[number] for v in vectors), default=0)
        if number in outcomes:
            leaves.append(feature.extremes(deepest))
            continue
        forbidden = [depth for zero in public.zeros for f, depth, _ in zero if f == number]
        deepest = max([deepest, *forbidden])
        # below the deepest depth that anything sees, one leaf stands for all
        leaves.append(list({leaf[:deepest]: leaf for leaf in feature.leaves}.values()))
    if math.prod(map(len, leaves)) > 50 * limit:
        return None
    records = [r for r in itertools.product(*leaves) if is_possible(public, r)]
    return records if len(records) <= limit else None


def list_tables(public, records, limit, deadline):
    """All multisets of n records with the exact margins; None if they are too many."""
    keys = [[(m, value_of(r, d)) for m, (d, _) in enumerate(public.margins)] for r in records]
    left = {
        (m, cell): c for m, (_, counts) in enumerate(public.margins) for cell, c in counts.items()
    }
    last = {key: number for number, row in enumerate(keys) for key in row}
    if set(last) != set(left):
        return []
    tables, counts, steps = [], [0] * len(records), [0]

    def fill(number, rest):
        steps[0] += 1
        if len(tables) > limit or steps[0] > 40 * limit or time.monotonic() > deadline:
            raise TooMany
        if number == len(records):
            if not rest:
                tables.append(tuple(counts))
            return
        row = keys[number]
        most = min([rest, *(left[key] for key in row)])
        least = max([0, *(left[key] for key in row if last[key] == number)])
        if number == len(records) - 1:
            least = max(least, rest)
        for count in range(least, most + 1):
            counts[number] = count
            for key in row:
                left[key] -= count
            fill(number + 1, rest - count)
            for key in row:
                left[key] += count
        counts[number] = 0

    try:
        fill(0, public.n)
    except TooMany:
        return None
    return tables


def list_reach(records, tables):
    """a(t) from the definition: over all datasets, records x and values y that some dataset has,
    the most of the fewest records that must change so that x becomes y (THEORY 2, worst case).
    """
    worst, possible = 0, [i for i in range(len(records)) if any(t[i] for t in tables)]
    for table in tables:
        away = sorted((sum(abs(p - q) for p, q in zip(table, t)) // 2, t) for t in tables)
        for x, y in itertools.permutations(possible, 2):
            fewest = sum(table) * bool(table[x])
            for distance, other in away if table[x] else ():
                if distance >= fewest:
                    break
                if other[y]:
                    # the person goes from x to y: one more change each if the tables need it not
                    spare = (table[x] <= other[x]) + (table[y] >= other[y])
                    fewest = min(fewest, distance + spare)
            worst = max(worst, fewest)
    return worst


def list_differences(public, promise, a, records, tables, limit, deadline):
    """Every difference of two datasets of the promise, with one pair for each; None if too many."""
    found, tried = {}, 0
    for table in tables:
        if promise.kind == "ball":
            others = (t for t in tables if sum(abs(p - q) for p, q in zip(table, t)) <= 2 * a)
        else:
            others = reach_by_exchanges(public, promise, records, table, deadline)
        for other in others:
            tried += 1
            if tried > limit or time.monotonic() > deadline:
                return None
            found.setdefault(tuple(q - p for p, q in zip(table, other)), (table, other))
    return None if time.monotonic() > deadline else found


def chain_length(public, promise):
    """How many records the person may have: n - 1 others need a record each."""
    return max(1, min(promise.most, public.n - (promise.persons - 1)))


def reach_by_exchanges(public, promise, records, table, deadline):
    """All datasets that the exchanges of a person's records make of one, until the time is over:
    each sets one more record, and what is set carries nothing (THEORY 15, promise A).
    """
    index = {record: number for number, record in enumerate(records)}
    blocks = [d for d, counts in maximal_margins(public) if len(counts) > 1]
    reached = current = {(table, (0,) * len(table))}
    for _ in range(chain_length(public, promise)):
        following = set()
        for free, settled in current:
            if time.monotonic() < deadline:
                following.update(_one_exchange(records, index, blocks, free, settled))
        current = following
        reached = reached | current
    return {tuple(p + q for p, q in zip(free, settled)) for free, settled in reached}


def _one_exchange(records, index, blocks, free, settled):
    """All results of one exchange from the definition; see `exchange_moves`."""
    for x, y in itertools.product(range(len(records)), repeat=2):
        if not free[x] or x == y:
            continue
        rest = list(free)
        rest[x] -= 1
        changed = [b for b in blocks if value_of(records[x], b) != value_of(records[y], b)]
        for groups in set_partitions(changed):
            choices = []
            for group in groups:
                wanted = [value_of(records[y], b) for b in group]
                have = [r for r, often in enumerate(rest) if often]
                choices.append(
                    [r for r in have if wanted == [value_of(records[r], b) for b in group]]
                )
            for carriers in itertools.product(*choices):
                if any(often > rest[r] for r, often in Counter(carriers).items()):
                    continue
                after = list(rest)
                for carrier, group in zip(carriers, groups):
                    moved = hand_over(records[carrier], records[x], records[y], group)
                    after[carrier] -= 1
                    after[index[moved]] += 1
                now = list(settled)
                now[y] += 1
                yield tuple(after), tuple(now)


def hand_over(carrier, x, y, blocks):
    """The carrier after the exchange: x's leaf where the published nodes of x and y differ."""
    moved = list(carrier)
    for block in blocks:
        for f, depth in enumerate(block):
            if depth and x[f][:depth] != y[f][:depth]:
                moved[f] = x[f]
    return tuple(moved)


def cost_of(public, weighted, before, after):
    """The cost of one concrete pair, from its records before and after."""
    records = [(-1, r) for r in before] + [(1, r) for r in after]
    paths = [[f.paths[leaf] for f, leaf in zip(public.features, r)] for _, r in records]
    cost = 0
    for query, weight in weighted:
        roles = [(f, query.role(f)) for f in range(len(public.features)) if query.sees(f)]
        for i, j in itertools.product(range(len(records)), repeat=2):
            factor = weight * records[i][0] * records[j][0]
            for f, role in roles:
                factor *= kernel(public.features[f], role, paths[i][f], paths[j][f])
                if not factor:
                    break
            cost += factor
    return cost


# --- 8 hunting: a pair of the promise, and the law of what is published --------------------------


@dataclass(frozen=True)
class Pair:
    """Two datasets with all exact totals: `others`, and `before` in one, `after` in the other."""

    before: tuple
    after: tuple
    others: tuple


def pair_from_tables(records, first, second):
    """The pair of two listed datasets."""
    before = [r for r, p, q in zip(records, first, second) for _ in range(max(0, p - q))]
    after = [r for r, p, q in zip(records, first, second) for _ in range(max(0, q - p))]
    others = [(r, min(p, q)) for r, p, q in zip(records, first, second) if min(p, q)]
    return Pair(tuple(before), tuple(after), tuple(others))


def complete(public, before, after):
    """A pair in which some records change: for disjoint blocks without structural zeros the other
    records exist if and only if no published value is used more often than its count.
    """
    margins = maximal_margins(public)
    columns = []
    for depths, counts in margins:
        left = Counter(counts)
        left.subtract(Counter(value_of(r, depths) for r in before))
        if min(left.values()) < 0 or len(left) > len(counts):
            return None
        columns.append([[cell, count] for cell, count in left.items() if count])
    rest, others = public.n - len(before), []
    while rest > 0:
        count = min([rest, *(column[-1][1] for column in columns)])
        record = [feature.leaves[0] for feature in public.features]
        for (depths, _), column in zip(margins, columns):
            named = [f for f, depth in enumerate(depths) if depth]
            for f, node in zip(named, column[-1][0]):
                below = (leaf for leaf in public.features[f].leaves if leaf[: len(node)] == node)
                record[f] = next(below)
            column[-1][1] -= count
            if not column[-1][1]:
                column.pop()
        others.append((tuple(record), count))
        rest -= count
    return Pair(tuple(before), tuple(after), tuple(others)) if rest == 0 else None


class Climber:
    """Local search for the most expensive pair: put the letters of a move on real leaves, and
    change one at a time as long as the exact totals allow it.
    """

    def __init__(self, public, promise, a, value):
        self.public, self.value = public, value
        self.margins = maximal_margins(public)
        self.times = chain_length(public, promise) if promise.kind == "exchange" else 1
        everything = range(len(public.features))
        blocks = [depths for depths, _ in self.margins]
        self.random = random.Random(0)
        if promise.kind == "exchange":
            self.moves = list(itertools.islice(exchange_moves(blocks, everything), 2000))
        else:
            draws = [self.random.sample(range(a), a) for _ in range(200 * (len(blocks) + 1))]
            orders = zip(*[iter(draws)] * (len(blocks) + 1))  # one more, for no margin at all
            self.moves = [ball_move(blocks, everything, order) for order in orders]
        self.leaves = [feature.leaves for feature in public.features]
        for f, feature in enumerate(public.features):
            if feature.values:
                self.leaves[f] = feature.extremes(max((block[f] for block in blocks), default=0))

    def climb(self, deadline, enough, restarts=120, patience=150):
        """The best pair until the time is over or its value is `enough`."""
        best, best_value = None, 0
        for _ in range(restarts):
            move, leaves = self.random.choice(self.moves), {}
            current, idle = -1, 0
            while idle < patience and time.monotonic() < deadline:
                trial = self._changed(move, leaves)
                pair = self._pair(move, trial)
                value = self.value(*pair) if pair else -1
                idle = 0 if value > current else idle + 1
                if value >= current:
                    leaves, current = trial, value
                if value > best_value:
                    best, best_value = pair, value
            if best_value >= enough or time.monotonic() > deadline:
                break
        return best

    def _changed(self, move, leaves):
        """Give some letters other leaves, then make equal what must agree."""
        letters = sorted({(f, letter) for _, at in move.slots for f, letter in at.items()})
        fresh = dict(leaves)
        few = self.random.choice((1, 1, 2, 3))
        some = self.random.choices(letters, k=few) if leaves else letters
        for f, letter in some:
            drawn = self.random.choice(self.leaves[f])
            copied = leaves.get((f, self.random.choice(letters)[1]), drawn)
            fresh[f, letter] = self.random.choice((drawn, copied))
        for f, a, b, depth in move.same:
            if fresh[f, a][:depth] != fresh[f, b][:depth]:
                fresh[f, b] = fresh[f, a]
        return fresh

    def _pair(self, move, leaves):
        """Records before and after, or None where conditions or exact totals do not allow them."""
        for pairs, wanted in ((move.same, True), (move.differ, False)):
            if any((leaves[f, a][:d] == leaves[f, b][:d]) != wanted for f, a, b, d in pairs):
                return None
        sides = {-1: [], 1: []}
        for sign, at in move.slots:
            sides[sign].append(tuple(leaves[f, at[f]] for f in range(len(at))))
        before, after = tuple(sides[-1]), tuple(sides[1])
        if not all(is_possible(self.public, record) for record in before + after):
            return None
        for times in range(self.times, 0, -1):
            if self._fits(before * times):
                return before * times, after * times
        return None

    def _fits(self, before):
        for depths, counts in self.margins:
            used = Counter(value_of(r, depths) for r in before)
            if any(often > counts.get(cell, 0) for cell, often in used.items()):
                return False
        return len(before) <= self.public.n


def shifts(public, measured, pair):
    """How far each entry of what is published moves between the two datasets, in whole numbers,
    with the size of its noise in the same units: (shift, size, law).
    """
    entries = []
    signed = [(-1, r) for r in pair.before] + [(1, r) for r in pair.after]
    for query, noise in measured:
        seen = [f for f, depth in enumerate(query.depths) if depth]
        axes = []  # of an outcome only the groups are cells
        for f in seen:
            depth, feature = query.depths[f], public.features[f]
            nodes = {r[f][:depth] for _, r in signed}
            if query.kind == "residual":
                parents = {node[:-1] for node in nodes}
                nodes = {node for node in feature.nodes(depth) if node[:-1] in parents}
            axes.append(sorted(nodes))
        if math.prod(map(len, axes)) > 20_000:
            raise TooMany
        for cell in itertools.product(*axes):
            families = [public.features[f].siblings(node) for f, node in zip(seen, cell)]
            scale, moved = math.prod(families) if query.kind == "residual" else 1, 0
            for term, record in signed:
                if query.outcome:
                    f, name = query.outcome
                    term *= public.features[f].values[name][record[f]]
                for f, node, family in zip(seen, cell, families):
                    share = int(record[f][: len(node)] == node)
                    if query.kind == "residual" and record[f][: len(node) - 1] == node[:-1]:
                        share -= Fraction(1, family)
                    term *= share
                moved += term * scale
            if moved:
                power = 1 if noise.law == "laplace" else 2
                entries.append((int(moved), noise.size * scale**power, noise.law))
    return entries


def is_refuted(entries, stated, deadline):
    """Whether the exact laws of the published entries contradict a stated guarantee for this pair.

    Discrete Laplace: the loss reaches sum |shift|/scale exactly. Discrete Gaussian: the
    Kullback-Leibler divergence is exactly sum shift^2/(2 sigma^2), and rho is at least that. mu: an
    event whose probabilities G_mu does not allow (THEORY 22, last line: a norm refutes nothing).
    """
    laws = {law for _, _, law in entries}
    if stated.kind == "mu":
        return laws == {"rounded"} and mu_is_refuted(entries, stated.value, deadline)
    if stated.kind == "rho":
        divergence = sum(Fraction(shift**2) / (2 * size) for shift, size, _ in entries)
        return laws <= {"discrete", "lattice"} and divergence > stated.value
    loss = sum(abs(shift) / size for shift, size, _ in entries)
    return laws == {"laplace"} and not stated.delta and loss > stated.value


def mu_is_refuted(entries, mu_squared, deadline):
    """Whether an event shows that mu is larger: T >= s for a weighted sum T of the entries.

    The law of T without shift is the convolution of the entries' laws. For every s:
    alpha = P(T >= s), power = P(T >= s - D), and G_mu needs power <= Phi(Phi^-1(alpha) + mu).
    """
    if sum(Fraction(shift**2) / size for shift, size, _ in entries) <= mu_squared:
        return False  # the Gaussian that was rounded is no further apart
    weights = whole_weights(entries)
    kept = [(w, shift, size) for w, (shift, size, _) in zip(weights, entries) if w]
    distance = sum(w * shift for w, shift, _ in kept)
    # |T - its unrounded value| <= sum |w| / 2
    slack = distance - sum(abs(w) for w, _, _ in kept)
    if slack > 0 and slack**2 > mu_squared * sum(w * w * size for w, _, size in kept):
        return True
    spread = sum(abs(w) * (10 * math.sqrt(size) + 3) for w, _, size in kept)
    if max(size for _, _, size in kept) > 500**2 or spread * len(kept) > 2e6:
        return False
    law = [UNIT_SMALL]
    for w, _, size in kept:
        if time.monotonic() > deadline:
            return False
        law = convolve(law, stretch(lower_law(size), abs(w)))
    return any_event(law, distance, mu_squared)


def whole_weights(entries):
    """Whole weights close to shift / variance, the best linear statistic."""
    ideal = [Fraction(shift) / size for shift, size, _ in entries]
    largest = max(map(abs, ideal))
    if len({size for _, size, _ in entries}) == 1:
        common = math.gcd(*(shift for shift, _, _ in entries))
        return [shift // common for shift, _, _ in entries]
    return [round(12 * value / largest) for value in ideal]


SMALL_BITS = 72
UNIT_SMALL = 1 << SMALL_BITS


@functools.lru_cache(maxsize=64)
def lower_law(size):
    """Lower bounds of P(round(sigma Z) = -K..K), in units of 2^-72; K is ten deviations."""
    last, inverse = math.isqrt(math.ceil(100 * size)) + 2, root_bounds(1 / Fraction(size))
    ends = []
    for k in range(last + 1):
        low, high = (Fraction(2 * k + 1, 2) * root for root in inverse)
        ends.append((normal_bounds(low)[0], normal_bounds(high)[1]))
    row = [ends[k][0] - ends[k - 1][1] for k in range(1, last + 1)]
    whole = [max(0, math.floor(p * UNIT_SMALL)) for p in [2 * ends[0][0] - 1, *row]]
    return (*reversed(whole[1:]), *whole)


def stretch(law, times):
    """The law of `times` a number."""
    stretched = [0] * ((len(law) - 1) * times + 1)
    stretched[::times] = law
    return stretched


def convolve(first, second):
    """The product of two laws, rounded down: one multiplication of long integers."""
    width, size = (2 * SMALL_BITS + 40) // 8, len(first) + len(second) - 1
    product = 1
    for law in (first, second):
        digits = b"".join(p.to_bytes(width, "little") for p in law)
        product *= int.from_bytes(digits, "little")
    digits = product.to_bytes((size + 1) * width, "little")
    starts = range(0, size * width, width)
    return [int.from_bytes(digits[i : i + width], "little") >> SMALL_BITS for i in starts]


def any_event(law, distance, mu_squared):
    """Whether a threshold near the middle shows more than G_mu allows; `law` has lower bounds of
    the probabilities around 0.
    """
    half, events = len(law) // 2, []
    below = [0, *itertools.accumulate(law)]  # of T < k - half, and by symmetry of T > half - k
    for s in range(distance // 2 - 20, distance // 2 + 22):
        alpha = 1 - Fraction(below[min(max(0, s + half), len(law))], UNIT_SMALL)
        power = Fraction(below[min(max(0, half + 1 - s + distance), len(law))], UNIT_SMALL)
        if 1e-12 < alpha < 1 - 1e-12 and 1e-12 < power < 1 - 1e-12:
            gap = NORMAL.inv_cdf(float(power)) - NORMAL.inv_cdf(float(alpha))
            events.append((gap, alpha, power))
    return any(exceeds(alpha, power, mu_squared) for _, alpha, power in sorted(events)[-2:])


def exceeds(alpha, power, mu_squared):
    """Whether power > Phi(z + mu) for some z with Phi(z) >= alpha: more than G_mu allows."""
    if not 0 < alpha < 1 or power <= 0:
        return False
    z = Fraction(NORMAL.inv_cdf(float(alpha))).limit_denominator(10**12) + Fraction(1, 10**10)
    if normal_bounds(z)[0] < alpha:
        return False
    return power > normal_bounds(z + root_bounds(mu_squared)[1])[1]


# --- 9 the verdict -------------------------------------------------------------------------------

CONFIRMED, LISTED, WEAKER = "confirmed", "confirmed by listing", "weaker than stated"
FALSE, UNCOVERED = "false", "not covered"
SEVERITY = (CONFIRMED, LISTED, WEAKER, UNCOVERED, FALSE)
EXIT_CODES = {CONFIRMED: 0, LISTED: 0, WEAKER: 3, UNCOVERED: 3, FALSE: 1}


@dataclass
class Finding:
    """What is found about one part, or about the whole."""

    name: str
    stated: list
    verdict: str = WEAKER
    proved: Guarantee = None
    rules: list = field(default_factory=list)
    reason: str = ""
    pair: Pair = None
    refuted: Guarantee = None

    @property
    def ratio(self):
        """By how much the proved number exceeds the stated one, in mu where that is its kind."""
        first = self.stated[0] if self.stated else None
        if not first or not first.value or not self.proved or self.proved.kind != first.kind:
            return None
        ratio = float(self.proved.value / first.value)
        return math.sqrt(ratio) if first.kind == "mu" else ratio

    @property
    def holds(self):
        """Whether what is proved implies everything that is stated."""
        return all(implies(self.proved, stated) for stated in self.stated)


class Checker:
    """Checks one release: proofs first, then listing, and always a hunt."""

    def __init__(self, release, seconds):
        self.release, self.public = release, drop_empty_levels(release.public)
        self.promise, self.seconds = release.promise, seconds
        self.deadline = time.monotonic() + seconds
        self.margins = [m for m in maximal_margins(self.public) if len(m[1]) > 1]
        self.a = self.hunted_a = self.promise.a
        self.listed, self.reach_reason = None, ""

    def run(self):
        """All findings, the whole release last."""
        self._find_reach()
        covered = [part for part in self.release.parts if not part.reason]
        self._list([entry for part in covered for entry in part.measured])
        costs = Costs(self.public, self.promise, self.a)
        findings = [self._check_part(part, costs) for part in self.release.parts]
        return [*findings, self._check_whole(covered, findings)]

    def _find_reach(self):
        """The a of the proof, and the a of the hunt: a promise to everyone is about a(t)."""
        low, high, self.reach_rule = reach_bounds(self.public)
        stated, most = self.promise.a, self.promise.most
        if self.promise.kind == "exchange":
            self._check_exchange_conditions()
            self.reach_rule = "exchange: everybody reaches every possible value"
        elif not self.promise.everyone:
            self.reach_rule = f"given: any {stated} records, which need not suffice for everybody"
        elif high is None:
            self.reach_reason = f"{self.reach_rule}; the release states a = {stated}"
        else:
            if most > 1 and low < high and are_disjoint(self.margins) and not self.public.zeros:
                high += 1  # m(1 + q): that a(t) <= q is about these totals only
            needed = min(high * most, self.public.n)
            if needed > stated:
                self.reach_reason = f"{self.reach_rule} gives {needed}; the release states {stated}"
                self.a = needed
                self.hunted_a = max(stated, low) if most == 1 else stated

    def _check_exchange_conditions(self):
        """Disjoint blocks, and zeros only between published values of one block (THEORY 11)."""
        if not are_disjoint(self.margins):
            raise NotCovered("exchange with overlapping exact margins")
        for zero in self.public.zeros:
            inside = [all(depths[f] >= depth for f, depth, _ in zero) for depths, _ in self.margins]
            if not any(inside):
                raise NotCovered("exchange with structural zeros outside one exact margin")

    def _list(self, measured):
        """List all datasets and pairs if they are few; correct a(t) by them."""
        middle = self.deadline - self.seconds / 2
        self.records = relevant_records(self.public, measured)
        if self.records is None or self.public.n > 60:
            return
        tables = list_tables(self.public, self.records, 3000, middle)
        if not tables or (self.reach_reason and (self.promise.most > 1 or len(tables) > 400)):
            return
        if self.reach_reason:
            exact = list_reach(self.records, tables)
            self.a = self.hunted_a = max(self.promise.a, exact)
            self.reach_rule = f"reach: a(t) = {exact} by listing {len(tables)} tables"
            is_more = exact > self.promise.a
            self.reach_reason = f"{self.reach_rule}; {self.promise.a} is stated" if is_more else ""
        self.tables = len(tables)
        self.listed = list_differences(
            self.public, self.promise, self.a, self.records, tables, 400_000, middle
        )

    def _worst_listed(self, measured):
        """The worst listed pair, and the guarantee that it gives."""
        value, best, worst = self._value(measured), -1, None
        for first, second in self.listed.values():
            pair = pair_from_tables(self.records, first, second)
            found = value(pair.before, pair.after)
            if found > best:
                best, worst = found, pair
            if time.monotonic() > self.deadline:
                return None, worst
        return guarantee_of(measured[0][1].law, best, best), worst

    def _value(self, measured, number=Fraction):
        """What a pair costs, as a function of its records before and after."""

        def length(before, after):
            moved = shifts(self.public, measured, Pair(before, after, ()))
            return sum(number(abs(shift) / size) for shift, size, _ in moved)

        if measured[0][1].law == "laplace":
            return length
        weighted = [(query, number(1 / noise.size)) for query, noise in measured]
        return lambda before, after: cost_of(self.public, weighted, before, after)

    def _check_part(self, part, costs):
        """Prove, or list; and try to refute in any case."""
        finding, costs.rules = Finding(part.name, part.stated, reason=part.reason), {}
        try:
            if part.reason:
                raise NotCovered(part.reason)
            finding.proved = prove_part(part, costs)
        except NotCovered as error:
            finding.verdict, finding.reason = UNCOVERED, str(error)
            return finding
        laws = {f"noise: {noise.law}" for _, noise in part.measured}
        finding.rules, worst = [self.reach_rule, *costs.rules, *sorted(laws)], None
        if finding.holds:
            finding.verdict = CONFIRMED
        elif self.listed and part.measured:
            listed, worst = self._worst_listed(part.measured)
            finding.proved = listed or finding.proved
            if listed:
                finding.rules = [f"listing: {self.tables} tables, {len(self.listed)} differences"]
                finding.verdict = LISTED if finding.holds else WEAKER
        if finding.verdict != WEAKER and self.reach_reason:
            finding.verdict, finding.reason = WEAKER, self.reach_reason
        if finding.verdict != LISTED and part.measured:
            self._refute(finding, part.measured, worst)
        return finding

    def _refute(self, finding, measured, pair=None):
        """Hunt for a pair, and compare the exact law of what is published with what is stated."""
        laws = {noise.law for _, noise in measured}
        if len(laws) > 1:
            return
        if pair is None and are_disjoint(self.margins) and not self.public.zeros:
            value = self._value(measured, float)
            climber = Climber(self.public, self.promise, self.hunted_a, value)
            enough = float(finding.proved.value) * (1 if laws <= {"rounded", "laplace"} else 2)
            share = self.seconds / (1 + len(self.release.parts))
            found = climber.climb(time.monotonic() + share, enough * (1 - 1e-9))
            pair = complete(self.public, *found) if found else None
        try:
            entries = shifts(self.public, measured, pair) if pair else []
        except TooMany:
            return
        for stated in finding.stated if entries else ():
            if is_refuted(entries, stated, time.monotonic() + max(2, self.seconds)):
                finding.verdict, finding.pair, finding.refuted = FALSE, pair, stated
                return

    def _check_whole(self, covered, findings):
        """The composition of all parts against what is stated of the release."""
        whole = Finding("the release", self.release.stated, reason=self.reach_reason)
        missing = [finding for finding in findings if finding.proved is None]
        if missing:
            reasons = sorted({f"{finding.name}: {finding.reason}" for finding in missing})
            whole.verdict, whole.reason = UNCOVERED, "; ".join(reasons)
            return whole
        whole.proved = compose([finding.proved for finding in findings])
        whole.rules = list(dict.fromkeys(rule for f in findings for rule in f.rules))
        whole.rules += ["composition: mu^2, rho and epsilon add"] * (len(findings) > 1)
        if not whole.holds:
            self._refute(whole, [entry for part in covered for entry in part.measured])
        elif all(finding.verdict in (CONFIRMED, LISTED) for finding in findings):
            whole.verdict = worst_verdict(findings)
            if not implies(whole.proved, self.release.reported):
                whole.verdict = WEAKER
                whole.reason = f"the reported {self.release.reported} does not follow by the rules"
        return whole


def worst_verdict(findings):
    """The most severe verdict of some findings."""
    return max((finding.verdict for finding in findings), key=SEVERITY.index, default=CONFIRMED)


def check_release(folder, seconds=10):
    """Check a folder. Returns the verdict, the findings (the whole last) and the release."""
    release = read_release(folder)
    findings = Checker(release, seconds).run()
    return worst_verdict(findings), findings, release


def main(arguments=None):
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description="Check the privacy guarantee of a semidp release.")
    parser.add_argument("release", metavar="RELEASE", help="the folder of the release")
    parser.add_argument("--seconds", type=float, default=10, help="to list and hunt (default 10)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    notes = []
    try:
        verdict, findings, release = check_release(options.release, options.seconds)
        notes = release.notes
    except Unreadable as error:
        print(f"semidp_check: {error}", file=sys.stderr)
        return 2
    except NotCovered as error:
        verdict, findings = UNCOVERED, [Finding("the release", [], UNCOVERED, reason=str(error))]
    if options.format == "json":
        print(json.dumps(to_json(verdict, findings), indent=2, ensure_ascii=False))
    else:
        print("\n".join(to_lines(verdict, findings) + notes))
    return EXIT_CODES[verdict]


def to_json(verdict, findings):
    """The verdict as plain values; `parts` says it for each result."""
    documents = []
    for finding in findings:
        document = {"name": finding.name, "verdict": finding.verdict, "ratio": finding.ratio}
        document["stated"] = finding.stated[0].to_json() if finding.stated else None
        document["proved"] = finding.proved.to_json() if finding.proved else None
        documents.append(document | {"rules": finding.rules, "reason": finding.reason})
    pair = next((asdict(finding.pair) for finding in findings if finding.pair), None)
    return {**documents.pop(), "verdict": verdict, "pair": pair, "parts": documents}


def to_lines(verdict, findings):
    """The verdict for people: one line, then why, then the pair."""
    whole = findings[-1]
    reason = next((f.reason for f in reversed(findings) if f.reason and f.verdict == verdict), "")
    if not reason and verdict == WEAKER:
        reason = "the release uses a finer argument, which is not repeated here"
    texts = [f"stated {whole.stated[0]}" if whole.stated else "", reason]
    texts.insert(1, f"proved {whole.proved}" if whole.proved else "")
    lines = [verdict + ": " + "; ".join(text for text in texts if text)]
    for finding in findings:
        ratio = f" (ratio {finding.ratio:.4g})" if finding.ratio else ""
        lines.append(f"  {finding.name}: {finding.verdict}, proved {finding.proved}{ratio}")
        lines += [f"    {rule}" for rule in finding.rules]
    for finding in [finding for finding in findings if finding.pair][:1]:
        pair = finding.pair
        lines.append(f"pair: two datasets told apart better than {finding.name} states")
        for before, after in zip(pair.before, pair.after):
            lines.append(f"  {_record_text(before)}  ->  {_record_text(after)}")
        lines += [f"  {count} x {_record_text(record)} in both" for record, count in pair.others]
    return lines


def _record_text(record):
    return "(" + ", ".join(leaf[-1] for leaf in record) + ")"


if __name__ == "__main__":
    sys.exit(main())
