"""Recompute the privacy guarantee of a semidp release from the definitions.

    python semidp_check.py RELEASE [--seconds 10] [--format text|json]

This file shares no code with semidp and needs nothing but Python's standard library, so it can be
read, copied and run alone. It asks one question: does the guarantee that `release.json` states
follow from the exact totals, the promise (which datasets are compared) and the stated laws of the
noise? It does not ask whether the noise was drawn, nor whether the files follow from it.

The answer is `confirmed`, `confirmed by listing`, `weaker than stated`, `false` or `not covered`.
Numbers that decide are exact fractions; square roots, exponentials and normal probabilities are
enclosed between fractions and taken at the end that claims less privacy.

How to read it: 1 numbers, 2 the rules, 3 the folder, 4 the public facts, 5 how many records change
together, 6 moves and their worst costs, 7 noise, composition and conversions, 8 listing of small
spaces, 9 hunting for a counterexample, 10 the verdict.
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
from collections import Counter, namedtuple
from dataclasses import dataclass, field
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


# --- 2 the rules ---------------------------------------------------------------------------------


def list_rules():
    """Every sentence that a verdict may rest on: its name, what it says, and the theorems of the
    folder `proofs` that stand behind it, or how else it is known: `pen` (a proof on paper).

    reach, nothing exact | no published value can change: a(t) = 1 | semi_adjacency_bound
    reach | disjoint blocks, rarest totals sum below n: a(t) = q + 1 | semi_adjacency_exact
    reach, rarest totals overlap | disjoint blocks: a(t) <= q | helper_saved
    reach, junction tree | a(t) <= number of cliques + 1 | semi_adjacency_decomposable
    reach, zeros | structural zeros: a(t) <= 1 + Graver degree of two blocks | pen
    reach, circle | 2 x J x K, all pairs exact: a(t) <= 1 + 2 min(J, K) | pen
    reach, several records | m records per person: m times as many | several_records_reach
    reach, linked files | members: 2 + own blocks; 2a units | linked_reach, changed_units
    reach, whole units | m(1 + blocks) members; 1 + blocks units in own features | pen
    reach by exchange | every person becomes every possible one | adjacent_reach
    reach by listing | a(t) from all datasets | listing_decides
    given | any a records, which need not suffice for everybody | pen
    exact totals | what lies below an exact margin does not move | residual_below_published
    ball norms | D1 <= 2a, D2^2 by largest entries | released_table_in_ball, ball_l1, ball_l2
    ball norms, free | D1 <= 2a, D2^2 <= 2a^2 with an unpublished feature | ball_l2_unpublished
    ball norms, parity | two blocks, one of two values: an odd a counts as a - 1 | parity
    ball norms, circle | 2 x J x K, all pairs exact: twice a J x K table, a/2 records | pen
    exchange norms | D1 <= 2(q + 1), D2^2 <= q^2 + q + 2 | exchange_norms
    several records | m exchanges: m times as far | several_records_norms
    sums | D1, D2 <= a(u - l) for groups of exact sizes | group_sums, several_group_sums
    sums by exchange | two groups of exact sizes, one value each | exchange_group_sums
    replaced values | any a records replace a values of groups, one exchange two | pen
    moments | X'y moves by (u - l) times a rows, if the sum of rows is exact | pen
    ranks | a replaced value moves every rank of its group by at most 1 | pen
    one cell | x11 moves by a quarter of the sum of absolute changes | pen
    patterns | all ways to place the records of a move in the trees of features | pen
    pairing | a move is a single moves that keep one margin | pairing
    sum of costs | at most the sum of the worst cost of each query | cost_of_move
    rounded noise | mu = D2 / sigma | pen
    discrete noise | rho = D2^2 / (2 sigma^2) | pen
    Laplace noise | epsilon = D1 / scale | pen
    choices | exponential mechanism: the loss has range 2 rate per rank | pen
    canonical noise | f for every move of x11 that the noise covers | pen
    composition | mu^2, rho and epsilon add | pen
    listing | all datasets and pairs of the promise | differences_listed
    """
    lines = [line.strip() for line in list_rules.__doc__.splitlines() if " | " in line]
    return dict(line.split(" | ", 1) for line in lines)


# --- 3 the folder: from release.json to plain values ---------------------------------------------


class Unreadable(Exception):
    """The folder cannot be read, or contradicts itself."""


class NotCovered(Exception):
    """No rule here speaks about this part."""


class Feature:
    """A feature: the names of its depths, coarse to fine, and its leaves as paths of labels.

    `values` says for each outcome what a leaf adds to the sums, as a vector. A private outcome that
    is no public feature has a leaf for each corner of its values: sums are farthest apart there.
    `is_partial`: there are more values, and these are the farthest apart.
    """

    def __init__(self, names, leaves, values=None, is_partial=False):
        self.names, self.leaves, self.is_partial = tuple(names), tuple(leaves), is_partial
        self.values = values or {}
        self.families = Counter()  # how many children every inner node has
        for depth in range(1, len(self.leaves[0]) + 1 if self.leaves else 1):
            self.families.update(node[:-1] for node in self.nodes(depth))
        self.paths = {}  # every leaf as a path of (label, number of siblings)
        for leaf in self.leaves:
            sizes = [self.families[leaf[:k]] for k in range(len(leaf))]
            self.paths[leaf] = tuple(zip(leaf, sizes))

    def nodes(self, depth):
        """The nodes at a depth, in order; a node is the path that leads to it."""
        return list(dict.fromkeys(leaf[:depth] for leaf in self.leaves))

    def siblings(self, node):
        """How many children the parent of a node has, the node included."""
        return self.families[node[:-1]]

    def corners(self, depth):
        """Of a feature with values: below each node the leaves that can be farthest apart."""
        chosen = set()
        for values in self.values.values():
            if len(next(iter(values.values()))) > 1:
                return self.leaves
            for node in self.nodes(depth):
                below = [leaf for leaf in self.leaves if leaf[:depth] == node]
                chosen |= {min(below, key=values.get), max(below, key=values.get)}
        return sorted(chosen)


class Guarantee(namedtuple("Guarantee", "kind value delta terms", defaults=(Fraction(0), ()))):
    """`mu`: value is mu squared. `rho`: value is rho. `epsilon`: value is epsilon, with delta, or
    the sum of the pure epsilons `terms` of a composition.
    """

    def __str__(self):
        if self.kind == "mu":
            return f"mu = {math.sqrt(self.value):.6g}"
        tail = f", delta = {float(self.delta):.3g}" if self.delta else ""
        return f"{self.kind} = {float(self.value):.6g}{tail}"

    def to_json(self):
        """Exact fractions as text, under the names that release.json uses."""
        name = {"mu": "mu_squared"}.get(self.kind, self.kind)
        delta = {"delta": str(self.delta)} if self.kind == "epsilon" else {}
        return {name: str(self.value), **delta}


class Query(namedtuple("Query", "kind depths outcome rows space", defaults=((), (), 0))):
    """What was measured of the records of a `space` (0; 1 for the units of linked files).

    `table`: counts at some depths (0: not in it). `residual`: along every feature with depth > 0
    the mean of the siblings is subtracted; it is measured times the product of the sibling counts,
    which makes it whole. `sums`: of an outcome (a feature, and the name of its values) over the
    cells, for records with the labels in `rows`. `ranks`: numbers of values up to each, likewise.
    `moments`: sums of a row for each cell (`rows`) times the outcome. `cell`: the count of records
    with the labels in `rows`.
    """

    def role(self, f):
        """What a feature is in the query: a depth of a table or residual, or the outcome."""
        if self.outcome and self.outcome[0] == f:
            return ("value", self.depths[f], self.outcome[1])
        return ("residual" if self.kind == "residual" else "table", self.depths[f])

    @property
    def seen(self):
        """The features that matter."""
        return [f for f in range(len(self.depths)) if any(self.role(f)[1:])]


# Independent noise in every entry: its size is sigma squared, or the scale of Laplace noise. Of
# choices it is what makes the norms of ranks costs. Canonical noise covers `moves` of x11 at the
# cost of epsilon (its size) and delta. Entries are rounded to 2^-bits.
Noise = namedtuple("Noise", "law size delta moves bits", defaults=(Fraction(0), 1, 0))

# What everybody knows: features, n, the exact margins (depths, counts), impossible combinations.
Public = namedtuple("Public", "features n margins zeros")

# Which datasets are compared: any `a` records, or one person's exchange. `everyone`: the release
# says that a suffices for every person, so a must be at least a(t). `most` is the largest number of
# records of one person, of whom there are `persons`. Linked files protect a `member` or a whole
# `unit`; `units` are how many units may differ in features of their own, in these or their size, in
# anything.
PROMISE = "kind a everyone most persons protect least inherited derived units"
Promise = namedtuple("Promise", PROMISE, defaults=(1, 0, "", 0, (), (), ()))

# One result: what was measured with which noise, its tables, what is stated, why it is not covered.
Part = namedtuple("Part", "name measured tables stated reason")

# A folder with its document, the spaces of records, and the features of the plan's outcomes.
Source = namedtuple("Source", "folder document spaces outcomes")

Release = namedtuple("Release", "spaces promise parts stated reported notes")

LAWS = {
    "rounded gaussian": ("rounded", "sigma2"),
    "discrete gaussian": ("discrete", "sigma2"),
    "lattice gaussian": ("lattice", "sigma2"),
    "laplace": ("laplace", "scale"),
}
KINDS = {"rounded": "mu", "discrete": "rho", "lattice": "rho", "laplace": "epsilon"}
KINDS |= {f"choice for {kind}": kind for kind in ("mu", "rho", "epsilon")}


def read_release(folder):
    """Read release.json; say what contradicts itself."""
    try:
        return build_release(Path(folder), load_document(Path(folder)))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError):
        raise Unreadable(f"{folder}/release.json is damaged, or of another version") from None


def load_document(folder):
    """The document of a folder; large plans and dataspaces have files of their own."""
    try:
        document = json.loads((folder / "release.json").read_text(encoding="utf-8"))
        for key in ("plan", "dataspace"):
            if document.get(key) == {"file": f"{key}.json"}:
                document[key] = json.loads((folder / f"{key}.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise Unreadable(f"{folder} has no readable release.json: name a release") from None
    return document


def build_release(folder, document):
    """The release as plain values; a combination has the parts of the releases it was made of."""
    sources = [Source(folder, document, [], {})]
    if document["guarantee"] is None:
        raise NotCovered("the release states no guarantee")
    for each in document.get("combination", []):
        inside = folder / each["folder"]
        sources.append(Source(inside, load_document(inside), [], {}))
    if "combination" in document:
        document["plan"] = join_plans(document, [source.document for source in sources[1:]])
    plan = document["plan"]
    spaces = read_spaces(document["dataspace"], plan, sources)
    promise, parts = read_promise(plan, document), []
    for source in sources:
        source.spaces.extend(spaces)
        stated = read_parts(source)
        if source.document is not document:
            check_source(source, document)
            everyone = source.document["plan"]["adjacency"] in ("worst-case", "exchange")
            promise = promise._replace(everyone=promise.everyone or everyone)
            stated = [part._replace(stated=[]) for part in stated]  # under promises of their own
        parts += stated
    stated = [read_guarantee(document["guarantee"])]
    stated += [read_budget(document["budget"])] if document["budget"] else []
    delta = Fraction(str(plan.get("report_delta", document["report_delta"])))
    reported = Guarantee("epsilon", Fraction(document["epsilon"]), delta)
    notes = [] if document["private"] else ["note: noise from a seed, so it is not private"]
    return Release(spaces, promise, parts, stated, reported, notes)


def join_plans(document, inner):
    """What a combination publishes exactly, and its promise: it has no plan of its own."""
    if any("combination" in each or "link" in each["dataspace"] for each in inner):
        raise NotCovered("a combination of combinations or of linked files")
    plan = {"invariants": [names for each in inner for names in each["plan"]["invariants"]]}
    plan["adjacency"] = "exchange" if document["a"].get("kind") == "exchange" else "its number"
    if "most" in inner[0]["plan"]:
        plan["most"] = inner[0]["plan"]["most"]
    return plan


def check_source(source, document):
    """A release in a combination has the same records, levels and promise, and no other totals."""
    inner, union = source.document, drop_empty_levels(source.spaces[0])
    public = drop_empty_levels(read_spaces(inner["dataspace"], inner["plan"], [])[0])
    levels = {feature.names: feature.leaves for feature in union.features}
    same = all(feature.leaves == levels.get(feature.names) for feature in public.features)
    totals = [union.n, *document["dataspace"]["margins"]]
    same = same and all(margin in totals for margin in [public.n, *inner["dataspace"]["margins"]])
    if not same or inner["plan"].get("most", 1) != document["plan"].get("most", 1):
        raise NotCovered("combined releases with different levels, totals or persons")


def read_parts(source):
    """All results of a document."""
    parts = []
    for key, entries in source.document.items():
        if key in READERS:
            parts += [read_part(source, key, entry) for entry in entries]
        elif key in ("combination", "combined") or not isinstance(entries, list):
            continue
        elif entries and isinstance(entries[0], dict):
            parts.append(Part(key, [], [], [], "results of a kind that is unknown here"))
    return parts


def read_part(source, key, entry):
    """What was measured, what is stated of it, and what the plan gave it to spend."""
    plan, (asked_key, read) = source.document["plan"], READERS[key]
    asked = [each for each in plan.get(asked_key, []) if each.get("name") == entry["name"]]
    stated = [read_guarantee(entry["guarantee"]), read_budget(entry["budget"])]
    for budget in asked or [plan]:
        if not {"mu", "rho", "epsilon"}.isdisjoint(budget):
            stated.append(read_budget(budget))
    part = Part(entry["name"], [], [], stated, "")
    try:
        if entry["noise"]["claim"] != "exact":
            raise NotCovered(f"{entry['noise']['mechanism']} makes an ideal claim")
        read(source, asked[0] if asked else {}, entry, part)
    except NotCovered as error:
        return part._replace(reason=str(error))
    return part


def read_spaces(document, plan, sources):
    """The public facts of the records, or of the members and units of linked files."""
    described = [(document, plan.get("invariants", []))]
    if "link" in document:
        described.append((document["units"], plan["units"].get("exact", [])))
    spaces = []
    for space, planned in described:
        features = [read_feature(entry) for entry in space["schema"]["feature"]]
        public = Public(features, whole_number(space["n"]), [], [])
        for source in () if spaces else sources:
            add_outcomes(public, source)
        public.margins.extend(read_margin(public, margin) for margin in space["margins"])
        for zero in space["schema"].get("structural_zero", []):
            public.zeros.append([(*find_place(public, name), set(zero[name])) for name in zero])
        check_agreement(public)
        asked = {depths_of(public, names) for names in planned}
        are_fixed = all(is_fixed(public, depths) for depths in asked)
        if not are_fixed or not {depths for depths, _ in public.margins} <= asked:
            raise NotCovered("the exact totals are not those that the plan names")
        spaces.append(public)
    return spaces


def read_margin(public, margin):
    """The depths of an exact margin, and its counts by cell."""
    depths = depths_of(public, margin["features"])
    order = list(dict.fromkeys(find_place(public, name)[0] for name in margin["features"]))
    cells = list(itertools.product(*(public.features[f].nodes(depths[f]) for f in order)))
    counts = [whole_number(count) for count in margin["counts"]]
    if len(cells) != len(counts) or sum(counts) != public.n:
        raise Unreadable(f"the margin {margin['features']} does not fit its levels, or n")
    by_feature = sorted(range(len(order)), key=order.__getitem__)
    return depths, {tuple(map(cell.__getitem__, by_feature)): c for cell, c in zip(cells, counts)}


def read_feature(entry):
    """A feature from its tree, levels or bins; `finer` has the labels of an outcome below them."""
    names, leaves = (entry["name"],), []
    if "tree" in entry:
        return Feature(entry["nest"], list_paths(entry["tree"]))
    if "levels" in entry:
        leaves = [(label,) for label in entry["levels"]]
    else:  # every edge begins a bin, but for an open end
        leaves = [(f"from {edge}",) for edge in entry["bins"] if edge != "inf"]
    if (entry.get("null_level"),) not in [(None,), *leaves]:
        leaves.append((entry["null_level"],))
    for name, below in list(entry.get("finer", {}).items())[:1]:
        names = (*names, name)
        if below:
            leaves = [(*leaf, label) for leaf, labels in zip(leaves, below) for label in labels]
    return Feature(names, leaves)


def list_paths(tree):
    """The leaves of a tree of labels."""
    if not isinstance(tree, dict):
        return [(label,) for label in tree]
    return [(label, *path) for label, below in tree.items() for path in list_paths(below)]


def find_place(public, name):
    """The number of the feature that a name belongs to, and the depth that it names."""
    for number, feature in enumerate(public.features):
        if name in feature.names:
            return number, feature.names.index(name) + 1
    raise NotCovered(f"{name!r} is no feature of the public schema")


def depths_of(public, names):
    """The depth of every feature in a table of these names."""
    depths = [0] * len(public.features)
    for name in [names] if isinstance(names, str) else names:
        number, depth = find_place(public, name)
        depths[number] = max(depths[number], depth)
    return tuple(depths)


def whole_number(value):
    """A count, which must be one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unreadable("a count is not a whole number of at least 0")
    return value


def read_positive(text):
    """A scale of noise."""
    value = Fraction(text)
    if value <= 0:
        raise Unreadable("a scale of noise must be above 0")
    return value


def check_agreement(public):
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
    return +total


def read_promise(plan, document):
    """The adjacency; the plan and the stated a must be about the same one."""
    asked, a, space = plan.get("adjacency", "worst-case"), document["a"], document["dataspace"]
    person, link = a.get("protection", {}), space.get("link", {})
    most, everyone = person.get("most", 1), asked in ("worst-case", "exchange")
    kind = "exchange" if a.get("kind") == "exchange" else "ball"
    agrees = (kind == "exchange") == (asked == "exchange") and bool(link) == ("units" in plan)
    if link:
        keys = ("protect", "most", "least")
        agrees = agrees and all(person.get(key, link[key]) == link[key] for key in keys)
        agrees = agrees and all(plan["units"][key] == link[key] for key in keys)
        agrees = agrees and "most" not in plan
    elif most != plan.get("most", 1) or person.get("protect", "unit") != "unit":
        agrees = False
    if not agrees or "quarters" in link:
        raise NotCovered("the plan and the stated a name different promises, or members in no unit")
    persons = whole_number(document.get("persons") or space["n"])
    promise = Promise(kind, whole_number(a["used"]), everyone, whole_number(most), persons)
    if not link:
        return promise
    columns = itertools.chain(
        *(f.names for f in map(read_feature, space["units"]["schema"]["feature"]))
    )
    changed = a.get("units", dict.fromkeys(("own", "size", "derived"), 2 * promise.a))
    return promise._replace(
        most=whole_number(link["most"]),
        least=whole_number(link["least"]),
        protect=link["protect"],
        inherited=tuple(sorted(set(columns) - set(link["derived"]))),
        derived=tuple(link["derived"]),
        units=tuple(whole_number(changed[key]) for key in ("own", "size", "derived")),
    )


def read_noise(noise, choices=1):
    """The law of the noise with its exact size."""
    law = noise.get("law", noise["mechanism"])
    if law in LAWS:
        return Noise(LAWS[law][0], read_positive(noise[LAWS[law][1]]))
    if law == "canonical":
        moves = whole_number(int(noise["moves"]))
        if "mu_squared" in noise:
            return Noise("rounded", moves**2 / read_positive(noise["mu_squared"]))
        delta = Fraction(noise["delta"])
        return Noise("canonical", read_positive(noise["epsilon"]), delta, moves)
    rate = read_positive(noise.get("rate", 1)) if "rate" in noise else Fraction(1)
    sizes = {
        "permute and flip": ("epsilon", 1 / (2 * rate)),
        "exponential (zCDP)": ("rho", 1 / rate**2),
        "exponential (GDP)": ("mu", 2 / (PI_HIGH * rate**2)),
    }
    if law not in sizes or "rate" not in noise:
        raise NotCovered(f"noise of the law {law!r}")
    return Noise(f"choice for {sizes[law][0]}", sizes[law][1] / choices)


def read_tables(source, asked, entry, part):
    """A table, or several tables that share residuals; of linked files for both kinds."""
    described = [entry["members"], entry["units"]] if "members" in entry else [entry]
    law, has_residuals = entry["noise"]["law"], any(each.get("residuals") for each in described)
    if has_residuals != law.endswith("residuals"):
        raise NotCovered(f"residuals with noise of the law {law!r}")
    if law != "no noise" and not has_residuals:
        query = Query("table", depths_of(source.spaces[0], entry["features"]))
        part.measured.append((query, read_noise(entry["noise"])))
    for space, (public, each) in enumerate(zip(source.spaces, described)):
        for table in each.get("tables", [each]):
            part.tables.append((space, depths_of(public, table["features"])))
        for residual in each.get("residuals", []):
            law, size = LAWS[f"{each['law']} gaussian"][0], read_positive(residual["sigma2"])
            depths = depths_of(public, residual["features"])
            part.measured.append((Query("residual", depths, space=space), Noise(law, size)))
    if part.measured and len(described) == 1:
        check_levels(source, entry, part)


def check_levels(source, entry, part):
    """The file of measurements shows the levels: every cell of a table; of a residual, centered
    over the levels that can occur, how many entries it has and by what they were multiplied.
    """
    stem = "measurements.csv" if entry["name"] == "table" else f"{entry['name']}-measurements.csv"
    if not (source.folder / stem).exists():
        return
    with open(source.folder / stem, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    public, cells = source.spaces[0], Counter()
    kept = drop_empty_levels(public).features if "residuals" in entry else public.features
    for residual, (query, _) in zip(entry.get("residuals", [entry]), part.measured):
        named = [(feature, depth) for feature, depth in zip(kept, query.depths) if depth]
        names = list(itertools.chain(*(feature.names[:depth] for feature, depth in named)))
        for nodes in itertools.product(*(feature.nodes(depth) for feature, depth in named)):
            scale = math.prod(f.siblings(node) for (f, _), node in zip(named, nodes))
            labels = tuple(itertools.chain(*nodes))
            is_binned = any(label.startswith("from ") for label in labels)
            in_table = () if is_binned else labels
            cells[
                (" × ".join(residual["features"]), scale) if "scale" in rows[0] else in_table
            ] += 1
    if "scale" in rows[0]:
        listed = Counter((row["residual"], int(row["scale"])) for row in rows)
    else:
        listed = Counter(() if () in cells else tuple(map(row.get, names)) for row in rows)
    if cells != listed:
        raise Unreadable(f"the measured entries of {entry['name']} are not those of its levels")


def add_outcomes(public, source):
    """Find the feature of every outcome of a plan, or add one."""
    for results, (key, _) in READERS.items():
        for asked in (
            source.document["plan"].get(key, []) if key not in ("table", "odds_ratio") else ()
        ):
            entries = source.document.get(results, [])
            entry = next((each for each in entries if each["name"] == asked["name"]), {})
            try:
                outcome = find_outcome(public, key, asked, entry)
            except NotCovered as error:
                outcome = error
            source.outcomes[key, asked["name"]] = outcome


def find_outcome(public, key, asked, entry):
    """The feature that an outcome is, and the name of its values; a new one if it is private."""
    column, _, level = asked["column"].partition("=")
    low, high = map(Fraction, asked.get("bounds", ["0", "1"]))
    steps = asked["grid"] if "bounds" in asked else 1
    corners, halves, edges = [(0,), (steps,)], [], []
    if key == "distribution":
        middles = [low + (high - low) * Fraction(2 * k + 1, 2 * steps) for k in range(steps)]
        edges = sorted({*middles, *map(Fraction, asked.get("lines", []))})
        halves = add_differences(len(edges) + 1)
        corners = align_vectors(find_deepest(halves))
    elif key == "quantile":
        corners = [(0,), (1,), (2,)][: 1 + min(2, steps)]
    elif key == "answered":
        half = whole_number(int(entry["noise"]["fineness"])) * steps
        weight = whole_number(int(entry["noise"]["weight"]))
        corners = [(0, 0), (weight, -half), (weight, half)]
    name, is_partial = f"{key} {asked['name']}", key in ("quantile", "distribution")
    numbers = [number for number, each in enumerate(public.features) if column in each.names]
    feature = public.features[numbers[0]] if numbers else Feature((name,), [()])
    if len(feature.leaves[0]) < len(feature.names):  # any value, below every level if there are any
        leaves, labels = [], [f"{column} {place}" for place in range(len(corners))]
        for leaf in feature.leaves:
            leaves += [(*leaf, label) for label in labels]
        values = dict(zip(leaves, corners * len(feature.leaves)))
        if not numbers:
            numbers = [len(public.features)]
            public.features.append(feature)
        public.features[numbers[0]] = Feature(feature.names, leaves, {name: values}, is_partial)
        return numbers[0], name
    if key in ("answered", "quantile"):
        raise NotCovered(f"{key} of {column!r}, which the public schema has as a feature")
    depth, vectors = feature.names.index(column), []
    for leaf in feature.leaves:
        try:
            value = Fraction(leaf[depth] == level) if level else Fraction(leaf[depth])
        except ValueError:
            raise NotCovered(f"the levels of {column!r} are no values") from None
        step = (min(max(value, low), high) - low) / (high - low) * steps
        if step.denominator != 1:
            raise NotCovered(f"the levels of {column!r} are no values on its grid")
        cell = sum(1 for edge in edges if edge <= value)
        vectors.append(halves[cell] if halves else {0: int(step)})
    feature.values[name] = dict(zip(feature.leaves, align_vectors(vectors)))
    return numbers[0], name


def add_differences(size):
    """What each of some values in a row adds to the differences of halves: 1 to a node in whose
    left half it lies, -1 for the right one; the root first. The left half is not the smaller one.
    """
    vectors, pieces = [{} for _ in range(size)], [(0, size)]
    for first, after in pieces:
        middle = first + (after - first + 1) // 2
        if middle < after:
            for value in range(first, after):
                vectors[value][middle] = 1 if value < middle else -1
            pieces += [(first, middle), (middle, after)]
    return vectors


def find_deepest(vectors):
    """The value that lies deepest in each half of both halves: farthest apart are two of them."""
    deepest = {}
    for vector in vectors:
        quarter = tuple(vector.values())[:2]
        if len(vector) > len(deepest.get(quarter, ())):
            deepest[quarter] = vector
    return list(deepest.values())


def align_vectors(vectors):
    """Dictionaries as tuples over all their keys."""
    keys = sorted(set(itertools.chain(*vectors)))
    return [tuple((dict.fromkeys(keys, 0) | vector).values()) for vector in vectors]


def get_outcome(source, key, asked):
    """The outcome of a request."""
    outcome = source.outcomes[key, asked["name"]]
    if isinstance(outcome, NotCovered):
        raise outcome
    return outcome


def read_sums(source, asked, entry, part, key="group"):
    """Sums of what an outcome adds, by sets of groups: sums, means, proportions, the numbers who
    answered with their sums, differences of halves, and numbers of values up to each.
    """
    public, column = source.spaces[0], asked["column"].partition("=")[0]
    if entry["noise"]["mechanism"] == "no noise":
        part.tables.extend((0, depths_of(public, [*names, column])) for names in asked["by"])
        return
    outcome, kind = get_outcome(source, key, asked), "ranks" if key == "quantile" else "sums"
    choices = len(asked.get("probabilities", [])) * (3 if "level" in asked else 1)
    noise, rows = read_noise(entry["noise"], choices), ()
    if "answered" in asked:
        rows = ((*find_place(public, asked["answered"]), "yes"),)
    for names in asked["by"]:
        if asked.get("answered", names) not in (names, *names):
            raise NotCovered("groups do not say how many records have an outcome")
        part.measured.append((Query(kind, depths_of(public, names), outcome, rows), noise))


def read_regression(source, asked, entry, part):
    """Sums by groups, or X'y of a design: a row for each cell of its features."""
    query, public = entry["query"], source.spaces[0]
    groups = set(itertools.chain(*query.get("by", [asked["factors"]])))
    agrees = set(asked["factors"]) <= groups
    for key in ("column", "bounds", "grid"):
        agrees = agrees and query[key] == asked.get(key, query[key])
    if not agrees:
        raise Unreadable("a regression measures something else than the plan asks for")
    products = query.get("by") or [column["features"] for column in query["columns"]]
    for first, second in itertools.product(products, repeat=2):  # X'X is published exactly
        if not is_fixed(public, depths_of(public, [*first, *second])):
            raise NotCovered("a design whose products of columns exact totals do not sum")
    if query["kind"] == "sums":
        read_sums(source, {**asked, "by": query["by"]}, entry, part, "regression")
        return
    columns, names = [], []
    for column in query["columns"]:
        names += column["features"]
        places = [find_place(public, name) for name in column["features"]]
        cells = itertools.product(*(public.features[f].nodes(depth) for f, depth in places))
        values = map(Fraction, column["values"])
        columns.append((places, dict(zip(cells, values, strict=True))))
    size = len(columns)
    identity = [[0] * i + [1] + [0] * (size - i - 1) for i in range(size)]
    weights = [list(map(Fraction, row)) for row in query.get("combination", identity)]
    rows, depths = [], depths_of(public, names)
    used = [f for f, depth in enumerate(depths) if depth]
    for cell in itertools.product(*(public.features[f].nodes(depths[f]) for f in used)):
        at, z = dict(zip(used, cell)), []
        for places, values in columns:
            z.append(values[tuple(at[f][:depth] for f, depth in places)])
        rows.append((cell, tuple(sum(map(Fraction.__mul__, row, z)) for row in weights)))
    outcome = get_outcome(source, "regression", {**asked, "by": []})
    part.measured.append(
        (Query("moments", depths, outcome, tuple(rows)), read_noise(entry["noise"]))
    )


def read_odds_ratio(source, asked, entry, part):
    """The count x11 of a 2 x 2 table, whose margins must be exact within strata."""
    public, strata, cell = source.spaces[0], list(asked.get("strata", [])), []
    for name in (asked["rows"], asked["columns"]):
        f, depth = find_place(public, name)
        cell.append((f, depth, entry["x11"][name]))
        is_exact = is_fixed(public, depths_of(public, [name, *strata]))
        if len(public.features[f].nodes(depth)) != 2 or not is_exact:
            raise NotCovered("an odds ratio without exact margins of two levels")
    depths = depths_of(public, [asked["rows"], asked["columns"], *strata])
    noise = read_noise(entry["noise"])._replace(bits=whole_number(entry["grid_bits"]))
    part.measured.append((Query("cell", depths, (), tuple(cell)), noise))


READERS = dict.fromkeys(("tables", "products", "partitioned", "linked"), ("table", read_tables)) | {
    "groups": ("group", read_sums),
    "answers": ("answered", functools.partial(read_sums, key="answered")),
    "quantiles": ("quantile", functools.partial(read_sums, key="quantile")),
    "distributions": ("distribution", functools.partial(read_sums, key="distribution")),
    "regressions": ("regression", read_regression),
    "odds_ratios": ("odds_ratio", read_odds_ratio),
}


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


# --- 4 the public facts: what can occur, and what the totals fix ---------------------------------


def kept_feature(public, number):
    """A feature without the levels that a published count of 0 rules out."""
    feature, leaves = public.features[number], public.features[number].leaves
    for depths, counts in public.margins:
        if depths[number]:
            alone = tuple(d if f == number else 0 for f, d in enumerate(depths))
            inhabited = roll_up(counts, depths, alone)
            leaves = [leaf for leaf in leaves if (leaf[: depths[number]],) in inhabited]
    return Feature(feature.names, leaves, feature.values, feature.is_partial)


def drop_empty_levels(public):
    """The same public facts over the levels that can occur; where one can, no margin shows it."""
    features, margins = [kept_feature(public, f) for f in range(len(public.features))], []
    for depths, counts in public.margins:
        sizes = [len(feature.nodes(depth)) for feature, depth in zip(features, depths)]
        visible = tuple(depth if size > 1 else 0 for depth, size in zip(depths, sizes))
        margins.append((visible, roll_up(counts, depths, visible)))
    return public._replace(features=features, margins=margins)


def cell_at(record, depths):
    """The cell of a record in the table at some depths."""
    return tuple(leaf[:depth] for leaf, depth in zip(record, depths) if depth)


def is_possible(public, record):
    """Whether every published count of the record is positive and no structural zero forbids it."""
    if any(cell_at(record, depths) not in counts for depths, counts in public.margins):
        return False
    for zero in public.zeros:
        if all(record[f][depth - 1] in labels for f, depth, labels in zero):
            return False
    return True


def maximal_margins(public):
    """The margins that no other one contains: `state` goes where `county` or `state x sex` is."""
    kept = []
    for depths, counts in sorted(public.margins, key=lambda margin: -sum(margin[0])):
        if any(depths) and not any(is_below(depths, larger) for larger, _ in kept):
            kept.append((depths, counts))
    return kept


def meet(depths, others):
    """Whether two tables have a feature in common."""
    return any(map(int.__mul__, depths, others))


def is_below(depths, larger):
    """Whether a table follows from a larger one."""
    return all(map(int.__le__, depths, larger))


def are_disjoint(margins):
    """Whether no feature (whole chain) lies in two margins."""
    used = [f for depths, _ in margins for f, depth in enumerate(depths) if depth]
    return len(used) == len(set(used))


def fixed_counts(public, depths):
    """The counts of a table that follows from one exact margin, or from n; else None."""
    trivial = [len(f.nodes(d)) == 1 for f, d in zip(public.features, depths)]
    visible = tuple(0 if flat else d for d, flat in zip(depths, trivial))
    if not any(visible):
        return {(): public.n}
    for larger, counts in public.margins:
        if is_below(visible, larger):
            return roll_up(counts, larger, visible)
    return None


def is_fixed(public, depths):
    """Whether a table follows from one exact margin, or from n."""
    return fixed_counts(public, depths) is not None


# --- 5 reach: how many records change together ---------------------------------------------------


def find_reach(public):
    """Return bounds of a(t), the fewest records that always suffice to turn anybody into anybody
    possible, and the rule. Blocks are the margins with two inhabited values.
    """
    margins = list_blocks(public)
    q = len(margins)
    if not q:
        return 1, 1, "reach, nothing exact"
    if are_disjoint(margins) and not public.zeros:
        if sum(min(counts.values()) for _, counts in margins) <= public.n - 1:
            return q + 1, q + 1, "reach"
        return 1, q, "reach, rarest totals overlap"
    if not public.zeros and is_decomposable([d for d, _ in margins]):
        return 1, q + 1, "reach, junction tree"
    if q <= 2 and are_disjoint(margins):
        least = min(len(counts) for _, counts in margins) if q == 2 else 1
        return 1, 1 + least, "reach, zeros"
    sizes = find_circle(public, [depths for depths, _ in margins])
    if sizes:
        return 1, 1 + 2 * sizes[1], "reach, circle"
    return 1, None, "reach by listing"


def find_circle(public, margins):
    """The numbers of levels, in order, of three features of which all pairs are exact and one has
    two levels; else nothing. Then a move of three-way tables is (u, -u), u a two-way table.
    """
    used = Counter(
        itertools.chain(*(filter(margin.__getitem__, range(len(margin))) for margin in margins))
    )
    depths = tuple(map(max, *margins))
    sizes = sorted(len(public.features[f].nodes(depths[f])) for f in used)
    return sizes if len(margins) == 3 and list(used.values()) == [2, 2, 2] and sizes[0] == 2 else []


def list_blocks(public):
    """The maximal margins with at least two inhabited values."""
    return [(depths, counts) for depths, counts in maximal_margins(public) if len(counts) > 1]


def find_linked_reach(spaces, promise):
    """What linked files need: members, and units in own features, size, or anything."""
    (blocks, unit_blocks), most = map(list_blocks, spaces), promise.most
    inherited, places, with_own = is_inherited(spaces[0], promise), 0, 0
    for depths, _ in blocks:
        kinds = {inherited[f] for f, depth in enumerate(depths) if depth}
        places, with_own = places + (True in kinds), with_own + (False in kinds)
    is_unit = promise.protect == "unit"
    for public in spaces:
        if public.zeros or any(0 in counts.values() for _, counts in public.margins):
            raise NotCovered("linked files with impossible or empty levels")
    if places > (not is_unit) or not are_disjoint(blocks):
        raise NotCovered("linked files with such exact margins of members")
    if not is_unit:
        return 2 + with_own, (2 * (2 + with_own),) * 3, "reach, linked files"
    if not are_disjoint(unit_blocks):
        raise NotCovered("whole units with overlapping exact margins")
    q_m, q_u = len(blocks), len(unit_blocks)
    units = (1 + q_u, 1 + q_u + most - promise.least, 1 + q_u + most * (1 + q_m))
    return most * (1 + q_m + q_u), units, "reach, whole units"


def is_inherited(members, promise):
    """Of every feature of members, whether it is one of their unit."""
    return [not set(f.names).isdisjoint(promise.inherited) for f in members.features]


def is_decomposable(vectors):
    """Whether margins form a junction tree when depth k of a feature counts as k variables: take
    away a margin whose overlap with all others lies in one of them, until one is left.
    """
    sets = []
    for vector in vectors:
        sets.append({(f, k) for f, depth in enumerate(vector) for k in range(depth)})
    while len(sets) > 1:
        for leaf in sets:
            remaining = [each for each in sets if each is not leaf]
            overlap = leaf & set().union(*remaining)
            if any(overlap <= each for each in remaining):
                sets = remaining
                break
        else:
            return False
    return True


# --- 6 moves and their worst costs ---------------------------------------------------------------
#
# A pair of the promise differs in a few records. A *move* lists them before (sign -1) and after
# (sign +1). On every feature the records have *letters*: records with the same letter have the same
# leaf there; conditions say which letters must agree or differ at a published depth. The worst cost
# over all ways to put letters on leaves is at least that of every real pair, because every real
# pair is one of these ways. (Small counts of t are ignored: that can only make it larger.)


# `slots`: (sign, letter on each feature); `same`, `differ`: (feature, two letters, depth).
Move = namedtuple("Move", "slots same differ")


class TooMany(Exception):
    """More patterns than the checker lists; a coarser rule is used."""


def exchange_moves(blocks, seen):
    """The moves of one exchange, as a table over the features `seen` sees them.

    *Exchange.* One person goes from x to a possible y. For every block whose published
    tuples differ between x and y, a carrier (another record, with y's whole tuple there) takes x's
    leaf on exactly those features of the block whose published nodes differ. One carrier may serve
    several blocks. Nothing else changes. The reverse direction has the same cost.
    """
    touched = []
    for block in blocks:
        touched += [{f: d for f, d in enumerate(block) if d and f in seen}]
    touched = list(filter(None, touched))
    x, y = 0, 1
    for changed in itertools.product(*(list_subsets(block) for block in touched)):
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
    """All such moves. Records can be renamed: the order of one margin is taken as it is, and of the
    next one only the lengths of its cycles matter.
    """
    touched = [block for block in margins if any(map(block.__getitem__, seen))]
    everything = list(itertools.permutations(range(a)))
    by_cycles = {cycle_lengths(order): order for order in everything}
    choices = [[tuple(range(a))], list(by_cycles.values()), *[everything] * len(touched)]
    for orders in itertools.product(*choices[: max(1, len(touched))]):
        yield ball_move(touched, seen, orders)


def cycle_lengths(order):
    """The lengths of the cycles that the elements of a permutation lie in."""
    lengths = []
    for start in order:
        place, length = order[start], 1
        while place != start:
            place, length = order[place], length + 1
        lengths.append(length)
    return tuple(sorted(lengths))


def list_subsets(items):
    """All subsets of a collection, the empty one included."""
    items = list(items)
    sizes = range(len(items) + 1)
    return itertools.chain(*(itertools.combinations(items, size) for size in sizes))


def set_partitions(items):
    """All ways to split a list into groups."""
    items = list(items)
    if not items:
        yield []
        return
    first, *remaining = items
    for groups in set_partitions(remaining):
        yield [[first], *groups]
        for number, group in enumerate(groups):
            yield [*groups[:number], [first, *group], *groups[number + 1 :]]


def tree_shape(leaves, height):
    """A tree down to a depth as nested tuples: siblings can be renamed."""
    if not height:
        return ()
    below = {}
    for leaf in leaves:
        below.setdefault(leaf[0], []).append(leaf[1:])
    return tuple(sorted(tree_shape(paths, height - 1) for paths in below.values()))


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


def kernel(feature, role, first, second, scale=1):
    """How much two records of opposite sign cancel along one feature; places are paths of (label,
    number of siblings). `scale` makes it whole.

    Table: 1 if they share the node at this depth. Residual: the inner product of two centred unit
    vectors, 1 - 1/c for the same node, -1/c for siblings, 0 if they part above. Depth 0: 1.
    Outcome: the inner product of the two values, if they share the group at this depth.
    """
    kind, depth, *outcome = role
    if outcome:
        values = feature.values[outcome[0]]
        vectors = [values[next(zip(*place))] for place in (first, second)]
        return sum(map(int.__mul__, *vectors)) * (first[:depth] == second[:depth])
    together = scale if first[:depth] == second[:depth] else 0
    if kind == "table" or depth == 0:
        return together
    if first[: depth - 1] != second[: depth - 1]:
        return 0
    family = first[depth - 1][1]
    return together - (Fraction(scale, family) if scale % family else scale // family)


class WorstCost:
    """The largest weighted cost of a list of moves, by listing all placements of their letters.

    The cost of a move m is the sum over measured queries of weight x |query(m)|^2, and
    |query(m)|^2 is the sum over pairs of records of sign x sign x the product of kernels. All in
    whole numbers: kernels times the sibling counts, weights times a common denominator.
    """

    def __init__(self, features, weighted, limit=300_000):
        self.features, self.limit, self.best = features, limit, 0
        self.queries = [query for query, _ in weighted]
        self.seen = sorted(set(itertools.chain(*(query.seen for query in self.queries))))
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
        longest = max(map(self._search, moves), default=0)
        return Fraction(self.best, self.denominator), longest

    def _spend(self, steps):
        self.limit -= steps
        if self.limit < 0:
            raise TooMany

    def _search(self, move):
        """A table of costs for every set of features that queries have; then the best choice."""
        signs = [sign for sign, _ in move.slots]
        pairs = list(itertools.combinations_with_replacement(range(len(signs)), 2))
        factors = [signs[i] * signs[j] * (1 + (i != j)) for i, j in pairs]
        options = {f: self._options(f, move, pairs) for f in self.seen}
        if not all(options.values()):
            return 0
        groups, tables, longest = {}, [], 0
        for query, weight in zip(self.queries, self.weights):
            features = tuple(query.seen)
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
        self._raise_best(options, tables)
        return longest

    def _raise_best(self, options, tables):
        """The largest sum of one entry of each table, where tables share the choices of features.
        `prefixes` has, for every table, the best entry that begins with the choices so far.
        """
        order = sorted(options, key=lambda f: len(options[f]))
        prefixes = []
        for features, table in tables:
            ranks = sorted(features, key=order.index)
            places = [features.index(f) for f in ranks]
            most = {}
            for chosen, cost in table.items():
                ordered = tuple(chosen[place] for place in places)
                for size in range(len(ordered) + 1):
                    most[ordered[:size]] = max(most.get(ordered[:size], cost), cost)
            prefixes.append((ranks, most))

        def extend(choices):
            self._spend(len(prefixes) // 2)
            bound = 0
            for ranks, costs in prefixes:
                bound += costs[tuple(choices[f] for f in ranks if f in choices)]
            if bound <= self.best:
                return
            if len(choices) == len(order):
                self.best = bound
                return
            f = order[len(choices)]
            for number in range(len(options[f])):
                extend({**choices, f: number})

        extend({})

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
            ends = [feature.paths[leaf] for leaf in feature.corners(deepest)]
            chosen = itertools.product(ends, repeat=len(distinct))
            places = (dict(zip(distinct, paths)) for paths in chosen)
        else:
            places = placements(tree_shape(feature.leaves, deepest), distinct)
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
                row = (
                    kernel(feature, role, at[letters[i]], at[letters[j]], scale) for i, j in pairs
                )
                option.append(tuple(row))
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


def distance(first, second):
    """The sum of absolute and of squared differences of two vectors."""
    differences = [p - q for p, q in zip(first, second)]
    return sum(map(abs, differences)), sum(d * d for d in differences)


def fill_groups(sizes, a):
    """How many of a replaced values lie in each group, as unequally as the sizes allow."""
    replaced = []
    for size in sorted(sizes, reverse=True):
        replaced.append(min(size, a - sum(replaced)))
    return replaced


class Costs:
    """Upper bounds, by rules, of how far pairs of the promise move what was measured."""

    def __init__(self, public, promise, a):
        self.public, self.promise, self.a = public, promise, a
        self.is_exchange = promise.kind == "exchange"
        self.times = promise.most if self.is_exchange else 1
        self.margins = [depths for depths, _ in list_blocks(public)]
        self.rules = {}
        self.norms = functools.cache(self._norms)

    def bound(self, weighted):
        """The largest sum of weight x |query|^2 over the pairs of the promise: at most the sum of
        the worst costs of each query; all queries at once where the patterns are few.
        """
        apart = sum(self.norms(query)[1] * weight for query, weight in weighted)
        together = [(query, weight) for query, weight in weighted if self.norms(query)[1]]
        kinds = {query.kind for query, _ in together}
        if len(together) < 2 or not kinds <= {"residual", "sums"}:
            return apart
        if kinds == {"sums"} and not self.is_exchange:  # attained, each in its groups
            return apart
        bounds = {"sum of costs": apart, **self._listed_bounds(together)}
        if not self.is_exchange and "patterns" not in bounds:
            bounds["pairing"] = min(bounds.get("pairing", apart), self._grouped_bound(together))
        return self._least(bounds)

    def _least(self, bounds):
        """The least of some bounds; its rule is noted."""
        rule = min(bounds, key=bounds.get)
        self.rules[rule] = None
        return bounds[rule]

    def _norms(self, query):
        """Bounds of the sum of absolute changes of a query, and of |query|^2; None: unknown."""
        if query.kind in ("table", "residual") and is_fixed(self.public, query.depths):
            self.rules["exact totals"] = None
            return 0, Fraction(0)
        finders = {"sums": self._bound_sums, "ranks": self._bound_sums, "cell": self._bound_cell}
        finders["moments"] = self._bound_moments
        length, square, rule = finders.get(query.kind, self._bound_table)(query)
        bounds = {} if square is None else {rule: Fraction(square * self.times**2)}
        if query.kind in ("table", "residual") or (query.kind == "sums" and not bounds):
            lengths = []
            bounds = {**self._listed_bounds([(query, Fraction(1))], lengths), **bounds}
            if query.kind == "table":
                length = min([length, *lengths])
        if not bounds:
            raise NotCovered("an outcome that exact totals show, with too many patterns")
        if self.times > 1:
            self.rules["several records"] = None
        return None if length is None else length * self.times, self._least(bounds)

    def _bound_table(self, query):
        """*Exchange norms* of a table that touches q blocks, or *ball norms*. A residual is no
        longer than its table (theorem residual_shortens).
        """
        if self.is_exchange:
            q = sum(1 for margin in self.margins if meet(margin, query.depths))
            return 2 * (q + 1), q**2 + q + 2, "exchange norms"
        return ball_norms(self.public, self.margins, query.depths, self.a)

    def _bound_sums(self, query):
        """Values are replaced in groups whose sizes are exact: k of them move the sums of a group
        by at most k times the largest distance of two values. Any a records replace a values, one
        exchange one value in two groups, or in the only one. If the groups are not exact, or for
        exchanges an exact total shows part of the outcome, only patterns tell.
        """
        number, name = query.outcome
        counts = fixed_counts(self.public, query.depths)
        if counts is None or (self.is_exchange and any(m[number] for m in self.margins)):
            return None, None, ""
        sizes = [len(f.nodes(d)) for f, d in zip(self.public.features, query.depths)]
        visible = [f for f, size in enumerate(sizes) if size > 1]
        for f, _, label in query.rows:
            if f in visible:
                place = visible.index(f)
                counts = {cell: k for cell, k in counts.items() if cell[place][-1] == label}
        vectors = set(self.public.features[number].values[name].values())
        distances = [distance(p, q) for p, q in itertools.combinations(vectors, 2)]
        far = max((d for d, _ in distances), default=0)
        square = max((d for _, d in distances), default=0)
        rule = "replaced values" if len(next(iter(vectors))) > 1 else "sums"
        if query.kind == "ranks":
            far, square, rule = 1, 1, "ranks"
        replaced = fill_groups(counts.values(), self.a)
        if self.is_exchange:
            rule = "sums by exchange" if rule == "sums" else rule
            replaced = [1] * min(2, len(counts))
        return far * sum(replaced), square * sum(k * k for k in replaced), rule

    def _bound_moments(self, query):
        """X'y for a design whose columns are exact in sum: centered at the middle, an outcome in
        [l, u] moves it by (u - l)|z|; an exchange over one block by (u - l) times the longest row
        or difference of two rows.
        """
        number, name = query.outcome
        values = list(itertools.chain(*self.public.features[number].values[name].values()))
        width, zero = max(values) - min(values), (0,) * len(query.rows[0][1])
        nodes = [set(f.nodes(d)) for f, d in zip(self.public.features, query.depths) if d]
        rows = [row for cell, row in query.rows if all(map(set.__contains__, nodes, cell))]
        if not self.is_exchange:
            lengths, times = [distance(row, zero) for row in rows], width * self.a
        else:
            blocks = [margin for margin in self.margins if meet(margin, query.depths)]
            if len(blocks) > 1 or any(m[number] for m in self.margins):
                raise NotCovered(
                    "exchange with a design over several exact margins, or its outcome"
                )
            lengths = [distance(p, q) for p, q in itertools.combinations([zero, *rows], 2)]
            times = width
        far, square = max(d for d, _ in lengths), max(d for _, d in lengths)
        return far * times, square * times**2, "moments"

    def _bound_cell(self, query):
        """If both margins of a 2 x 2 table are fixed in every stratum, all four cells of a stratum
        move by the same number: x11 by at most a quarter of all absolute changes.
        """
        length, _ = self.norms(query._replace(kind="table", rows=()))
        return length // 4, (length // 4) ** 2, "one cell"

    def _listed_bounds(self, weighted, lengths=None):
        """Bounds by listing placements: of all moves, and for the ball of single moves.

        *Pairing*: pair the records of a move by one margin; then the move is a sum of a single
        moves that keep this margin, and its norm is at most a times the worst of them.
        """
        worst = WorstCost(self.public.features, weighted)
        if any(self.public.features[f].is_partial for f in worst.seen):
            return {}
        if self.is_exchange:
            options = [("patterns", self.times, exchange_moves(self.margins, worst.seen))]
        else:
            options = [("patterns", 1, ball_moves(self.margins, worst.seen, self.a))]
            options = options[: self.a <= 4] + self._single_moves(worst.seen)
        bounds = {}
        for rule, times, moves in options:
            try:
                cost, length = WorstCost(self.public.features, weighted).largest(moves)
            except TooMany:
                continue
            bounds[rule] = min(cost * times**2, bounds.get(rule, cost * times**2))
            if lengths is not None and rule == "patterns":
                lengths.append(length)
        return bounds

    def _single_moves(self, seen):
        """One record changes and keeps a margin, or any."""
        margins = [*self.margins, (0,) * len(self.public.features)]
        return [("pairing", self.a, [ball_move([margin], seen, [(0,)])]) for margin in margins]

    def _grouped_bound(self, weighted):
        """Queries grouped by the margin along which each of them is shortest; groups add."""
        groups = {}
        for entry in weighted:
            costs = []
            for number, (_, _, moves) in enumerate(self._single_moves(range(len(entry[0].depths)))):
                costs.append((WorstCost(self.public.features, [entry]).largest(moves)[0], number))
            groups.setdefault(min(costs)[1], []).append(entry)
        total = Fraction(0)
        for entries in groups.values():
            singles = [self.norms(query)[1] * weight for query, weight in entries]
            total += min(sum(singles), self._listed_bounds(entries).get("pairing", sum(singles)))
        return total


def ball_norms(public, margins, depths, a):
    """D1, D2^2 and the rule of a table when any a records change.

    Roll the margins up to the table. A feature that the table shows deeper than every margin is
    unpublished: D2^2 <= 2a^2. Otherwise, with w margins that show every feature at least r times
    (a fractional cover of weight w/r), k = floor(a(1 - r/w)), g(s) = floor(a/s) s^2 + (a mod s)^2:
    D2^2 <= max g(s) + g(u) over 1 <= u <= s <= k, s + u <= a. With two blocks, one of two values,
    an odd a counts as a - 1 (theorem parity).
    """
    visible = [f for f, d in enumerate(depths) if d and len(public.features[f].nodes(d)) > 1]
    shown = []
    for margin in margins:
        features = [f for f in visible if margin[f] >= depths[f]]
        shown += [features] if features else []
    covers = Counter(itertools.chain(*shown))
    if not all(covers[f] for f in visible):
        return 2 * a, 2 * a * a, "ball norms, free"
    levels = []
    for block in shown:
        levels.append(math.prod(len(public.features[f].nodes(depths[f])) for f in block))
    rule, times, weight = "ball norms", 1, Fraction(len(shown), min(covers.values()))
    rolled = [tuple(map(min, margin, depths)) for margin in margins]
    if len(visible) == 3 and len(shown) == 3 and find_circle(public, rolled):
        a, rule, times, weight = a // 2, "ball norms, circle", 2, Fraction(2)
    if len(levels) == 2 and min(levels) == 2 and max(covers.values()) == 1 and a % 2:
        a, rule = a - 1, "ball norms, parity"
    k = a - math.ceil(a / weight)

    def most(s):
        return (a // s) * s * s + (a % s) ** 2

    sizes = [(s, u) for s in range(1, k + 1) for u in range(1, s + 1) if s + u <= a]
    largest = max((most(s) + most(u) for s, u in sizes), default=0)
    return 2 * a * times * bool(sizes), times * largest, rule


# --- 7 noise, composition, conversions -----------------------------------------------------------


def prove_part(part, find_costs):
    """The guarantee of one part, from bounds on how far its queries move.

    Rounded Gaussian noise on whole numbers is the Gaussian mechanism, rounded: mu = D2/sigma.
    Discrete Gaussian noise, also on the lattice of tables with the exact totals: rho = D2^2/(2
    sigma^2), and never mu. Discrete Laplace noise: epsilon = D1/scale. A choice with P(v) ~ exp(-
    rate x score), whose scores move by at most k: the loss has range 2 rate k, so epsilon = 2 rate
    k (also by permute and flip), rho = (rate k)^2/2, mu^2 = (pi/2)(rate k)^2. Canonical noise: f
    composed with itself as often as x11 exceeds what the noise covers.
    """
    check_everything_measured(part, find_costs)
    groups = {}
    for query, noise in part.measured:
        groups.setdefault(find_costs(query), []).append((query, noise))
    if not groups:
        return Guarantee("mu", Fraction(0))
    _, noise = part.measured[0]
    value = Fraction(0)
    for costs, entries in groups.items():
        weighted = [(query, 1 / noise.size) for query, noise in entries]
        if noise.law == "canonical":
            times = -(-costs.norms(entries[0][0])[0] // noise.moves)
            if times > 1 and noise.delta:
                raise NotCovered("canonical noise with delta that x11 outgrows")
            return Guarantee("epsilon", noise.size * times, noise.delta * min(times, 1))
        if KINDS[noise.law] != "epsilon":
            value += costs.bound(weighted)
            continue
        for query, weight in weighted:
            length, _ = costs.norms(query)
            if length is None:
                raise NotCovered("Laplace noise on sums of an outcome that exact totals show")
            value += length * weight
    return Guarantee(KINDS[noise.law], value / 2 if KINDS[noise.law] == "rho" else value)


NOISE_RULES = {"rounded": "rounded noise", "discrete": "discrete noise"} | {
    "lattice": "discrete noise",
    "laplace": "Laplace noise",
    "canonical": "canonical noise",
}


def check_everything_measured(part, find_costs):
    """Every residual of every published table is measured, or does not move.

    Without noise it must lie below an exact margin; under exchange its cost may also be 0. A given
    a so small that nothing moves is no reason to publish a table without noise.
    """
    measured = set()
    for query, _ in part.measured:
        if query.kind in ("table", "residual"):
            lower = list_below(query.depths) if query.kind == "table" else [query.depths]
            measured.update((query.space, depths) for depths in lower)
    for space, table in part.tables:
        for depths in list_below(table):
            query = Query("residual", depths, space=space)
            costs = find_costs(query)
            if (space, depths) in measured or is_fixed(costs.public, depths):
                continue
            if is_centered_away(costs.public, depths):
                continue
            if not costs.is_exchange or costs.norms(query)[1]:
                raise NotCovered("a residual is neither measured nor fixed by an exact total")


def list_below(depths):
    """All depth vectors below one."""
    return itertools.product(*(range(d + 1) for d in depths))


def is_centered_away(public, depths):
    """Whether every node at the depth of some feature is an only child: its residual is 0."""
    for feature, depth in zip(public.features, depths):
        if depth and all(feature.siblings(node) == 1 for node in feature.nodes(depth)):
            return True
    return False


def compose(guarantees):
    """Independent measurements under one promise: mu^2 adds to mu^2, rho to rho, epsilon to
    epsilon; mixtures as rho = mu^2/2 = epsilon^2/2.
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
    """Whether a proved guarantee implies a stated one, by the standard conversions."""
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


# --- 8 listing: all datasets and pairs of a small space ------------------------------------------


def relevant_records(public, measured, limit=400):
    """All possible records over the features that margins or queries see; None if too many."""
    vectors = [d for d, _ in public.margins] + [query.depths for query, _ in measured]
    outcomes = {query.outcome[0] for query, _ in measured if query.outcome}
    leaves = []
    if any(public.features[number].is_partial for number in outcomes):
        return None
    for number, feature in enumerate(public.features):
        deepest = max((v[number] for v in vectors), default=0)
        if number in outcomes:
            leaves.append(feature.corners(deepest))
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
    keys, left, tables, counts = [], {}, [], [0] * len(records)
    for number, (_, cells) in enumerate(public.margins):
        left |= {(number, cell): count for cell, count in cells.items()}
    for record in records:
        keys.append([(m, cell_at(record, d)) for m, (d, _) in enumerate(public.margins)])
    last = {key: number for number, row in enumerate(keys) for key in row}
    steps = itertools.count()

    def fill(number, missing):
        if len(tables) > limit or next(steps) > 40 * limit or time.monotonic() > deadline:
            raise TooMany
        if number == len(records):
            tables.extend([tuple(counts)] * (not missing))
            return
        most = min([missing, *(left[key] for key in keys[number])])
        least = max([0, *(left[key] for key in keys[number] if last[key] == number)])
        least = max(least, missing) if number == len(records) - 1 else least
        for count in range(least, most + 1):
            counts[number] = count
            for key in keys[number]:
                left[key] -= count
            fill(number + 1, missing - count)
            for key in keys[number]:
                left[key] += count
        counts[number] = 0

    try:
        fill(0, public.n if set(last) == set(left) else -1)
    except TooMany:
        return None
    return tables


def count_changes(table, other):
    """In how many records two datasets differ."""
    return sum(map(abs, map(int.__sub__, table, other))) // 2


def list_reach(records, tables):
    """a(t) from the definition: over all datasets, records x and values y that some dataset has,
    the most of the fewest records that must change so that x becomes y (worst case).
    """
    worst, possible = 0, [i for i, column in enumerate(zip(*tables)) if any(column)]
    for table in tables:
        away = sorted((count_changes(table, other), other) for other in tables)
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
    differences, tried = {}, 0
    for table in tables:
        if promise.kind == "ball":
            reached = (other for other in tables if count_changes(table, other) <= a)
        else:
            reached = reach_by_exchanges(public, promise, records, table, deadline)
        for other in reached:
            tried += 1
            if tried > limit or time.monotonic() > deadline:
                return None
            differences.setdefault(tuple(q - p for p, q in zip(table, other)), (table, other))
    return None if time.monotonic() > deadline else differences


def chain_length(public, promise):
    """How many records the person may have: n - 1 others need a record each."""
    return max(1, min(promise.most, public.n - (promise.persons - 1)))


def reach_by_exchanges(public, promise, records, table, deadline):
    """All datasets that the exchanges of a person's records make of one, until the time is over:
    each sets one more record, and what is set carries nothing.
    """
    index = {record: number for number, record in enumerate(records)}
    blocks = [depths for depths, _ in list_blocks(public)]
    reached = current = {(table, (0,) * len(table))}
    for _ in range(chain_length(public, promise)):
        following = set()
        for free, settled in current:
            if time.monotonic() < deadline:
                following.update(list_exchanges(records, index, blocks, free, settled))
        current = following
        reached = reached | current
    return {tuple(map(int.__add__, free, settled)) for free, settled in reached}


def list_exchanges(records, index, blocks, free, settled):
    """All results of one exchange from the definition; see `exchange_moves`."""
    for x, y in itertools.permutations(range(len(records)), 2):
        if not free[x]:
            continue
        before, after = records[x], records[y]
        changed = [b for b in blocks if cell_at(before, b) != cell_at(after, b)]
        remaining = Counter(dict(enumerate(free)))
        remaining[x] -= 1
        for groups in set_partitions(changed):
            choices = []
            for group in groups:
                choices.append([r for r in +remaining if agree(records[r], after, group)])
            for carriers in itertools.product(*choices):
                hands = Counter(remaining)
                hands.subtract(carriers)
                if min(hands.values()) < 0:
                    continue
                for carrier, group in zip(carriers, groups):
                    hands[index[hand_over(records[carrier], before, after, group)]] += 1
                now = list(settled)
                now[y] += 1
                yield tuple(map(hands.__getitem__, range(len(records)))), tuple(now)


def agree(first, second, blocks):
    """Whether two records have the same published values in some blocks."""
    return all(cell_at(first, block) == cell_at(second, block) for block in blocks)


def hand_over(carrier, x, y, blocks):
    """The carrier after the exchange: x's leaf where the published nodes of x and y differ."""
    moved = list(carrier)
    for block in blocks:
        for f, depth in enumerate(block):
            if depth and x[f][:depth] != y[f][:depth]:
                moved[f] = x[f]
    return tuple(moved)


def see(public, query, record):
    """What one record adds to the entries of a query that is no residual: (entry, amount)."""
    cell = cell_at(record, query.depths)
    if query.kind == "table":
        return [(cell, 1)]
    if query.kind == "moments":
        number, name = query.outcome
        (value,) = public.features[number].values[name][record[number]]
        return [(i, z * value) for i, z in enumerate(dict(query.rows)[cell])]
    if not all(record[f][depth - 1] == label for f, depth, label in query.rows):
        return []
    if query.kind == "cell":
        return [((), 1)]
    number, name = query.outcome
    if query.kind == "ranks":
        return [((cell, record[number]), 1)]
    vector = public.features[number].values[name][record[number]]
    return [((cell, i), amount) for i, amount in enumerate(vector)]


def add_up(public, query, signed):
    """The change of every entry of a query that is no residual, from signed records."""
    totals = Counter()
    for sign, record in signed:
        for entry, amount in see(public, query, record):
            totals[entry] += sign * amount
    return totals


def measure(public, query, signed):
    """The sum of absolute changes of a query and of their squares; of ranks the numbers k of
    replaced values by group, and their squares.
    """
    if query.kind == "residual":
        return 0, measure_residual(public, query, signed)
    totals = add_up(public, query, signed)
    if query.kind == "ranks":
        replaced = Counter()
        for (cell, _), change in totals.items():
            replaced[cell] += Fraction(abs(change), 2)
        totals = replaced
    return sum(map(abs, totals.values())), sum(change**2 for change in totals.values())


def measure_residual(public, query, signed):
    """|query|^2 as a sum over pairs of records."""
    roles = [(f, query.role(f)) for f in query.seen]
    total = 0
    for (sign, one), (other_sign, other) in itertools.product(signed, repeat=2):
        factor = sign * other_sign
        for f, role in roles:
            paths = public.features[f].paths
            factor *= kernel(public.features[f], role, paths[one[f]], paths[other[f]])
            if not factor:
                break
        total += factor
    return total


# --- 9 hunting: a pair of the promise, and the law of what is published --------------------------


# Two datasets with all exact totals: `others`, and `before` in one, `after` in the other.
Pair = namedtuple("Pair", "before after others")


def sign_records(before, after):
    """Records that a pair loses and gains, with their signs."""
    return [(-1, record) for record in before] + [(1, record) for record in after]


def pair_from_tables(records, first, second):
    """The pair of two listed datasets."""
    before = [r for r, p, q in zip(records, first, second) for _ in range(max(0, p - q))]
    after = [r for r, p, q in zip(records, first, second) for _ in range(max(0, q - p))]
    kept = [(r, min(p, q)) for r, p, q in zip(records, first, second) if min(p, q)]
    return Pair(tuple(before), tuple(after), tuple(kept))


def complete(public, before, after):
    """A pair in which some records change: for disjoint blocks without structural zeros the other
    records exist if and only if no published value is used more often than its count.
    """
    margins, columns, unchanged = maximal_margins(public), [], []
    for depths, counts in margins:
        left = Counter(counts)
        left.subtract(cell_at(record, depths) for record in before)
        if min(left.values()) < 0 or len(left) > len(counts):
            return None
        columns.append(left.elements())
    filled = Counter(zip(*columns)) if columns else Counter({(): public.n - len(before)})
    for cells, count in filled.items():
        record = [feature.leaves[0] for feature in public.features]
        for (depths, _), cell in zip(margins, cells):
            for f, node in zip([f for f, depth in enumerate(depths) if depth], cell):
                leaves = public.features[f].leaves
                record[f] = next(leaf for leaf in leaves if leaf[: len(node)] == node)
        unchanged.append((tuple(record), count))
    return Pair(tuple(before), tuple(after), tuple(unchanged)) if len(before) <= public.n else None


def draw_moves(spaces, promise, a, drawer):
    """Moves of the promise over all features, to be put on leaves."""
    public = spaces[0]
    seen, blocks = range(len(public.features)), [depths for depths, _ in maximal_margins(public)]
    if len(spaces) > 1:
        inherited = is_inherited(public, promise)
        slots = [len(f.names) * kept for f, kept in zip(public.features, inherited)]
        if promise.kind == "exchange":
            modes = ("stay", "swap", "room") if has_room(spaces, promise) else ("stay", "swap")
            return list(itertools.islice(linked_moves(blocks, inherited, modes), 2000))
        blocks.append(tuple(slots))  # members change places: every unit keeps its size
    elif promise.kind == "exchange":
        return list(itertools.islice(exchange_moves(blocks, seen), 2000))
    draws = [drawer.sample(range(a), a) for _ in range(200 * (len(blocks) + 1))]
    orders = zip(*[iter(draws)] * (len(blocks) + 1))  # one more, for no margin at all
    return [ball_move(blocks, seen, order) for order in orders]


def has_room(spaces, promise):
    """Whether in some dataset units at every place can take a member, and others can lose one: no
    unit is exact, places have many members, and sizes are on average well between the bounds.
    """
    members, units = spaces
    size, inherited = Fraction(members.n, units.n), is_inherited(members, promise)
    for depths, counts in members.margins:
        if any(map(int.__mul__, depths, inherited)) and min(counts.values()) < 8 * promise.most:
            return False
    return not units.margins and 8 * promise.least < 7 * size and 8 * size < 7 * promise.most


def linked_moves(blocks, inherited, modes):
    """Moves of one member in linked files by exchange: x goes as y to another unit v.

    A carrier hands over for every block of own features that changes. If a block with features of
    units changes there, its carrier takes x's place, with x's own values that differ. To swap, a
    member of v goes to the place that is free, so that every unit keeps its size; with room in v
    nobody needs to.
    """
    seen, x, y = range(len(inherited)), 0, 1
    subsets = [list_subsets(filter(block.__getitem__, seen)) for block in blocks]
    for changed, mode in itertools.product(itertools.product(*subsets), modes):
        slots = [(-1, dict.fromkeys(seen, x)), (1, dict.fromkeys(seen, y))]
        free, same, differ, letters = x, [], [], itertools.count(2)
        for block, features in zip(blocks, changed):
            named = [f for f in seen if block[f]]
            differ += [(f, x, y, block[f]) for f in features]
            same += [(f, x, y, block[f]) for f in named if f not in features]
            if not features or (mode != "room" and all(inherited[f] for f in named)):
                continue
            letter, taken = next(letters), set(features)
            if any(inherited[f] for f in features):
                taken.update(f for f in seen if inherited[f])
                free = letter
            slots.append((-1, dict.fromkeys(seen, letter)))
            slots.append((1, {f: x if f in taken else letter for f in seen}))
            same += [(f, y, letter, block[f]) for f in named]
        if mode == "swap":
            letter = next(letters)
            slots.append((-1, {f: y if inherited[f] else letter for f in seen}))
            slots.append((1, {f: free if inherited[f] else letter for f in seen}))
        elif mode == "stay":
            same += [(f, x, y, ANY_DEPTH) for f in seen if inherited[f]]
        yield Move(tuple(slots), tuple(same), tuple(differ))


ANY_DEPTH = 99


def list_size_changes(units, promise, a):
    """Pairs of units of the same features between which members move: records before and after."""
    if promise.derived != ("size",):
        return
    number, _ = find_place(units, "size")
    sizes = {int(leaf[0]): leaf for leaf in units.features[number].leaves if leaf[0].isdecimal()}
    leaves = [feature.leaves[0] for feature in units.features]

    def with_size(size):
        return tuple(sizes[size] if f == number else leaf for f, leaf in enumerate(leaves))

    for first, second in itertools.product(sizes, repeat=2):
        for step in range(1, a + 1):
            if {first - step, second + step} <= set(sizes):
                times = max(1, min(a // step, units.n // 2))
                before = (with_size(first), with_size(second))
                yield before * times, (with_size(first - step), with_size(second + step)) * times


def translate_margin(spaces, depths, counts):
    """An exact margin of units as one of members, each in a unit of its own; [] if impossible."""
    members, units = spaces
    names = [f.names[depth - 1] for f, depth in zip(units.features, depths) if depth]
    try:
        numbers = [find_place(members, name)[0] for name in names]
    except NotCovered:
        return []
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    translated = {}
    for cell, count in counts.items():
        translated[tuple(cell[i] for i in order)] = count
    return [(depths_of(members, names), translated)]


class Climber:
    """Local search for the most expensive pair: put the letters of a move on real leaves, and
    change one at a time as long as the exact totals allow it.
    """

    def __init__(self, spaces, promise, a, value):
        self.public, self.value, self.random = spaces[0], value, random.Random(0)
        self.margins = maximal_margins(self.public)
        is_single = promise.kind == "ball" or len(spaces) > 1
        self.times = 1 if is_single else chain_length(self.public, promise)
        self.moves = draw_moves(spaces, promise, a, self.random)
        self.leaves = [feature.leaves for feature in self.public.features]
        for f, feature in enumerate(self.public.features):
            if feature.values:
                self.leaves[f] = feature.corners(max((d[f] for d, _ in self.margins), default=0))
        self.limits = list(self.margins)
        for depths, counts in spaces[1].margins if len(spaces) > 1 else ():
            self.limits += translate_margin(spaces, depths, counts)

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
        for pairs, is_same in ((move.same, True), (move.differ, False)):
            if any((leaves[f, a][:d] == leaves[f, b][:d]) != is_same for f, a, b, d in pairs):
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
        for depths, counts in self.limits:
            used = Counter(cell_at(r, depths) for r in before)
            if any(often > counts.get(cell, 0) for cell, often in used.items()):
                return False
        return len(before) <= self.public.n


def list_shifts(public, measured, signed):
    """How far each entry of what is published moves between the two datasets, in whole numbers,
    with the size of its noise in the same units: (shift, size, law).
    """
    entries = []
    for query, noise in measured:
        unit = 2**noise.bits
        if query.kind == "residual":
            entries += list_residual_shifts(public, query, noise, signed)
            continue
        for shift in add_up(public, query, signed).values():
            if shift:
                entries.append((shift * unit, noise.size * unit**2, noise.law))
    return entries


def list_residual_shifts(public, query, noise, signed):
    """The same for a residual, whose entries are siblings of the nodes that change."""
    entries, axes = [], []
    seen = [f for f, depth in enumerate(query.depths) if depth]
    for f in seen:
        parents = {record[f][: query.depths[f] - 1] for _, record in signed}
        nodes = public.features[f].nodes(query.depths[f])
        axes.append([node for node in nodes if node[:-1] in parents])
    if math.prod(map(len, axes)) > 20_000:
        raise TooMany
    for cell in itertools.product(*axes):
        families = [public.features[f].siblings(node) for f, node in zip(seen, cell)]
        scale, moved = math.prod(families), 0
        for term, record in signed:
            for f, node, family in zip(seen, cell, families):
                is_sibling = record[f][: len(node) - 1] == node[:-1]
                share = int(record[f][: len(node)] == node) - Fraction(is_sibling, family)
                term *= share
            moved += term * scale
        if moved:
            entries.append((int(moved), noise.size * scale**2, noise.law))
    return entries


def is_refuted(entries, stated, deadline):
    """Whether the exact laws of the published entries contradict a stated guarantee for this pair.

    Discrete Laplace: the loss reaches sum |shift|/scale exactly. Discrete Gaussian: the
    Kullback-Leibler divergence is exactly sum shift^2/(2 sigma^2), and rho is at least that. mu: an
    event whose probabilities G_mu does not allow (a norm refutes nothing).
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


# --- 10 the verdict ------------------------------------------------------------------------------

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
    counts: str = ""

    @property
    def ratio(self):
        """By how much the proved number exceeds the stated one, in mu where that is its kind."""
        first = self.stated[0] if self.stated else None
        if not first or not first.value or not self.proved or self.proved.kind != first.kind:
            return None
        ratio = float(self.proved.value / first.value)
        return math.sqrt(ratio) if first.kind == "mu" else ratio

    @property
    def texts(self):
        """The rules that were used, each with its sentence and what stands behind it."""
        texts = []
        for rule in self.rules:
            sentence, theorems = list_rules()[rule].split(" | ")
            texts.append(f"{rule}: {sentence} [{theorems}] {self.counts}".rstrip())
        return texts

    @property
    def holds(self):
        """Whether what is proved implies everything that is stated."""
        return all(implies(self.proved, stated) for stated in self.stated)


class Checker:
    """Checks one release: proofs first, then listing, and always a hunt."""

    def __init__(self, release, seconds):
        self.release, self.spaces = release, [drop_empty_levels(p) for p in release.spaces]
        self.public, self.promise, self.seconds = self.spaces[0], release.promise, seconds
        self.deadline = time.monotonic() + seconds
        self.blocks = list_blocks(self.public)
        self.a = self.hunted_a = self.promise.a
        self.units, self.listed, self.reach_reason = self.promise.units, None, ""
        self.find_costs = functools.cache(self._find_costs)
        self.costs = functools.cache(lambda space, a, p: Costs(self.spaces[space], p, a))

    def run(self):
        """All findings, the whole release last."""
        self._find_reach()
        covered = [part for part in self.release.parts if not part.reason]
        measured = list(itertools.chain(*(part.measured for part in covered)))
        self._list(measured)
        findings = [self._check_part(part) for part in self.release.parts]
        return [*findings, self._check_whole(measured, findings)]

    def _find_costs(self, query):
        """The bounds for a query: of linked files any members or units may change."""
        if len(self.spaces) == 1:
            return self.costs(0, self.a, self.promise)
        a, ball = self.a, Promise("ball", self.a, True)
        if query.space:
            names = set()
            for feature, depth in zip(self.spaces[1].features, query.depths):
                names.update(feature.names[:depth])
            derived = names & set(self.promise.derived)
            a = self.units[bool(derived) + bool(derived - {"size"})]
        elif self._reads_derived(query):
            raise NotCovered("features of members that derive from their unit's members")
        return self.costs(query.space, min(a, self.spaces[query.space].n), ball)

    def _reads_derived(self, query):
        """Whether a table of members shows a derived feature of units."""
        names = set()
        for feature, depth in zip(self.public.features, query.depths):
            names.update(feature.names[:depth])
        return bool(names & set(self.promise.derived))

    def _find_reach(self):
        """The a of the proof, and the a of the hunt: a promise to everyone is about a(t)."""
        stated, most = self.promise.a, self.promise.most
        if len(self.spaces) > 1:
            self._find_linked_reach()
            return
        low, high, self.reach_rule = find_reach(self.public)
        if self.promise.kind == "exchange":
            self._check_exchange_conditions()
            self.reach_rule = "reach by exchange"
        elif not self.promise.everyone:
            self.reach_rule = "given"
        elif high is None:
            self.reach_reason = f"no rule for a(t); the release states a = {stated}"
        else:
            if most > 1 and low < high and are_disjoint(self.blocks) and not self.public.zeros:
                high += 1  # m(1 + q): that a(t) <= q is about these totals only
            needed = min(high * most, self.public.n)
            if needed > stated:
                self.reach_reason = f"{self.reach_rule} gives {needed}; the release states {stated}"
                self.a = needed
                self.hunted_a = max(stated, low) if most == 1 else stated

    def _find_linked_reach(self):
        needed, units, self.reach_rule = find_linked_reach(self.spaces, self.promise)
        needed, units = min(needed, self.public.n), [min(k, self.spaces[1].n) for k in units]
        if self.promise.everyone:
            self.a = max(self.a, needed)
            self.units = tuple(map(max, units, self.units))
        if (self.a, self.units) != (self.promise.a, self.promise.units):
            self.reach_reason = f"{needed} members and {units} units must change together"

    def _check_exchange_conditions(self):
        """Disjoint blocks, and zeros only between published values of one block."""
        if not are_disjoint(self.blocks):
            raise NotCovered("exchange with overlapping exact margins")
        for zero in self.public.zeros:
            for depths, _ in self.blocks:
                if all(depths[f] >= depth for f, depth, _ in zero):
                    break
            else:
                raise NotCovered("exchange with structural zeros outside one exact margin")

    def _list(self, measured):
        """List all datasets and pairs if they are few; correct a(t) by them."""
        middle = self.deadline - self.seconds / 2
        if len(self.spaces) > 1 or self.public.n > 60:
            return
        self.records = relevant_records(self.public, measured)
        if self.records is None:
            return
        tables = list_tables(self.public, self.records, 3000, middle)
        if not tables or (self.reach_reason and (self.promise.most > 1 or len(tables) > 400)):
            return
        if self.reach_reason:
            exact = list_reach(self.records, tables)
            self.a = self.hunted_a = max(self.promise.a, exact)
            self.reach_rule, self.reach_reason = "reach by listing", ""
            if exact > self.promise.a:
                self.reach_reason = f"a(t) = {exact} by listing; {self.promise.a} is stated"
        self.tables = len(tables)
        self.listed = list_differences(
            self.public, self.promise, self.a, self.records, tables, 400_000, middle
        )

    def _worst_listed(self, measured):
        """The worst listed pair, and the guarantee that it gives."""
        value, best, worst = self._value(measured), -1, None
        for first, second in self.listed.values():
            pair = pair_from_tables(self.records, first, second)
            cost = value(pair.before, pair.after)
            if cost > best:
                best, worst = cost, pair
            if time.monotonic() > self.deadline:
                return None, worst
        kind = KINDS[measured[0][1].law]
        return Guarantee(kind, Fraction(best) / 2 if kind == "rho" else Fraction(best)), worst

    def _value(self, measured, number=Fraction, space=0):
        """What a pair costs, as a function of its records before and after."""
        public, weighted = self.spaces[space], []
        for query, noise in measured:
            if query.space == space:
                is_length = KINDS.get(noise.law, "epsilon") == "epsilon"
                weighted.append((query, 0 if is_length else 1, number(1 / noise.size)))

        def value(before, after):
            signed = sign_records(before, after)
            return sum(measure(public, q, signed)[norm] * weight for q, norm, weight in weighted)

        return value

    def _check_part(self, part):
        """Prove, or list; and try to refute in any case."""
        finding, worst = Finding(part.name, part.stated, reason=part.reason), None
        if part.reason:
            finding.verdict = UNCOVERED
            return finding
        laws = {noise.law for _, noise in part.measured}
        try:
            self._prove(finding, part, laws)
        except NotCovered as error:
            finding.verdict, finding.reason = UNCOVERED, str(error)
        if finding.verdict == WEAKER and self.listed and part.measured and laws <= set(KINDS):
            proved, worst = self._worst_listed(part.measured)
            if proved:
                finding.proved, finding.rules = proved, ["listing"]
                finding.counts = f"{self.tables} tables, {len(self.listed)} differences"
                finding.verdict = LISTED if finding.holds else WEAKER
        if finding.verdict in (CONFIRMED, LISTED) and self.reach_reason:
            finding.verdict, finding.reason = WEAKER, self.reach_reason
        if finding.verdict != LISTED and part.measured:
            self._refute(finding, part.measured, worst)
        return finding

    def _prove(self, finding, part, laws):
        """What the rules prove, and which they are."""
        if len({KINDS.get(law, law) for law in laws}) > 1:
            raise NotCovered("different laws of noise in one result")
        finding.proved = prove_part(part, self.find_costs)
        rules = dict.fromkeys([self.reach_rule])
        if self.promise.most > 1 and len(self.spaces) == 1:
            rules["reach, several records"] = None
        for query, _ in part.measured:
            rules |= self.find_costs(query).rules
        rules |= dict.fromkeys(NOISE_RULES.get(law, "choices") for law in sorted(laws))
        finding.rules = list(rules)
        finding.verdict = CONFIRMED if finding.holds else WEAKER

    def _hunt(self, measured, enough, deadline):
        """The cost of the most expensive pair in hand, the pair, and the number of its space."""
        is_linked = len(self.spaces) > 1
        pairs = self._hunt_units(measured, enough, deadline) if is_linked else []
        if max((cost for cost, _, _ in pairs), default=0) < enough * (1 - 1e-9):
            value = self._value(measured, float)
            pair = None
            if are_disjoint(self.blocks) and not self.public.zeros:
                climber = Climber(self.spaces, self.promise, self.hunted_a, value)
                pair = climber.climb(deadline, enough * (1 - 1e-9))
            if pair:
                pair = Pair(*pair, ()) if is_linked else complete(self.public, *pair)
            pairs += [(value(pair.before, pair.after), pair, 0)] if pair else []
        return max(pairs, key=lambda entry: entry[0], default=(0, None, 0))

    def _hunt_units(self, measured, enough, deadline):
        """Units that change in size; if whole units are protected, in their own features too."""
        units, promise = self.spaces[1], self.promise
        value, pairs = self._value(measured, float, 1), []
        moved = 1 if promise.kind == "exchange" else min(promise.a, promise.units[1] // 2)
        for before, after in list_size_changes(units, promise, moved):
            pairs.append((value(before, after), Pair(before, after, ()), 1))
        if promise.protect == "unit" and not any(is_inherited(self.public, promise)):
            a = promise.units[0]
            climber = Climber([units], Promise("ball", a, True), a, value)
            same = []
            for name, i in itertools.product(promise.derived, range(a)):
                f, depth = find_place(units, name)
                same.append((f, i, a + i, depth))
            climber.moves = [move._replace(same=(*move.same, *same)) for move in climber.moves]
            middle = (time.monotonic() + deadline) / 2
            records = climber.climb(middle, enough * (1 - 1e-9))
            if records:
                pairs.append((value(*records), Pair(*records, ()), 1))
        return pairs

    def _refute(self, finding, measured, pair=None):
        """Hunt for a pair, and compare the exact law of what is published with what is stated: as
        soon as a pair costs a little more than that, then at what is proved.
        """
        laws = {noise.law for _, noise in measured}
        if len(laws) > 1 or not laws <= {"rounded", "discrete", "lattice", "laplace"}:
            return
        deadline = time.monotonic() + self.seconds / (1 + len(self.release.parts))
        factor = 1 if laws <= {"rounded", "laplace"} else 2
        last = float(finding.proved.value) * factor if finding.proved else math.inf
        goals = {float(g.value) * factor * 1.04 for g in finding.stated if g.kind != "epsilon"}
        for goal in [0] if pair else sorted({min(goal, last) for goal in goals} | {last}):
            cost, pair, space = (1, pair, 0) if not goal else self._hunt(measured, goal, deadline)
            if pair and self._tell_apart(finding, measured, pair, space):
                return
            if cost < goal * (1 - 1e-9):
                return

    def _tell_apart(self, finding, measured, pair, space):
        """Whether the law of what is published tells a pair apart better than stated."""
        entries = [(query, noise) for query, noise in measured if query.space == space]
        signed = sign_records(pair.before, pair.after)
        try:
            shifts = list_shifts(self.spaces[space], entries, signed)
        except TooMany:
            return False
        for stated in finding.stated if shifts else ():
            if is_refuted(shifts, stated, time.monotonic() + max(2, self.seconds)):
                finding.verdict, finding.pair, finding.refuted = FALSE, pair, stated
                return True
        return False

    def _check_whole(self, measured, findings):
        """The composition of all parts against what is stated of the release."""
        whole = Finding("the release", self.release.stated, reason=self.reach_reason)
        missing = [finding for finding in findings if finding.proved is None]
        if missing:
            reasons = sorted({f"{finding.name}: {finding.reason}" for finding in missing})
            whole.verdict, whole.reason = UNCOVERED, "; ".join(reasons)
            return whole
        whole.proved = compose([finding.proved for finding in findings])
        whole.rules = list(dict.fromkeys(itertools.chain(*(f.rules for f in findings))))
        whole.rules += ["composition"] * (len(findings) > 1)
        outcomes = [query.outcome for query, _ in measured if query.outcome]
        if not whole.holds:
            # outcomes of one column, measured in two ways, are features of their own here
            if len(set(outcomes)) == 1 or not outcomes:
                self._refute(whole, measured)
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
        documents.append(document | {"rules": finding.texts, "reason": finding.reason})
    pair = next((finding.pair._asdict() for finding in findings if finding.pair), None)
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
        lines += [f"    {text}" for text in finding.texts]
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
