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
import decimal
import functools
import itertools
import json
import math
import random
import re
import sys
import time
import zipfile
from collections import Counter, namedtuple
from fractions import Fraction
from pathlib import Path

# --- 1 numbers: fractions that enclose irrational ones -------------------------------------------

DOWN = decimal.Context(prec=80, rounding=decimal.ROUND_FLOOR)
UP = decimal.Context(prec=80, rounding=decimal.ROUND_CEILING)
SMALL = Fraction(1, 10**70)
PI_LOW = Fraction("3.14159265358979323846264338327950288419716939937510582097494459230781640628620")
PI_HIGH = PI_LOW + SMALL
FAR = 19  # the normal tail beyond so many standard deviations is below SMALL


def enclose(function, x):
    """Fractions below and above `ln`, `exp` or `sqrt` of x > 0, which all increase. Python rounds
    them correctly to 80 digits.
    """
    x = Fraction(x)
    ends = [getattr(c, function)(c.divide(x.numerator, x.denominator)) for c in (DOWN, UP)]
    return Fraction(DOWN.next_minus(ends[0])), Fraction(UP.next_plus(ends[1]))


ROOT_LOW, ROOT_HIGH = enclose("sqrt", 2 * PI_LOW)[0], enclose("sqrt", 2 * PI_HIGH)[1]


@functools.lru_cache(maxsize=10_000)
def normal_bounds(x):
    """Fractions below and above Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/15 + ...)."""
    x, sums = Fraction(x), []
    if x < 0:
        low, high = normal_bounds(-x)
        return max(Fraction(0), 1 - high), 1 - low
    if x > FAR:
        return 1 - SMALL, Fraction(1)
    for context in (DOWN, UP):
        total = term = context.divide(x.numerator, x.denominator)
        square, k = context.multiply(total, total), 1
        while k < 2 * square or term > SMALL:  # then each term is below half of the one before
            k += 2
            term = context.divide(context.multiply(term, square), k)
            total = context.add(total, term)
        sums.append(Fraction(total) + (Fraction(term) if context is UP else 0))
    low, high = enclose("exp", x * x / 2)
    below, above = sums[0] / (high * ROOT_HIGH), sums[1] / (low * ROOT_LOW)
    return Fraction(1, 2) + below, min(Fraction(1, 2) + above, Fraction(1))


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
    reach, whole units | m(1 + blocks) members; 1 + blocks units in own features | whole_unit_reach
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
    ranks | a replaced value moves every rank of its group by at most 1 | pen
    one cell | x11 moves by a quarter of the sum of absolute changes | pen
    one member | carriers, one who makes room; two sizes change | one_member_reach, one_member_keeps
    patterns | all ways to place a move in the trees of features | centered_cost_of_records, pen
    pairing | a move is a single moves that keep one margin | pairing, centered_cost_of_move
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
        self.values, self.children = values or {}, {(): []}  # the children of every node
        for depth in range(1, len(self.leaves[0]) + 1 if self.leaves else 1):
            for node in self.nodes(depth):
                self.children.setdefault(node[:-1], []).append(node)

    def nodes(self, depth):
        """The nodes at a depth, in order; a node is the path that leads to it."""
        return list(dict.fromkeys(leaf[:depth] for leaf in self.leaves))

    def path(self, leaf):
        """A leaf as a path of (label, number of siblings)."""
        return tuple(zip(leaf, (len(self.children[leaf[:k]]) for k in range(len(leaf)))))

    def corners(self, depth):
        """Below each node the leaves whose values can be farthest apart."""
        chosen = set()
        for values in self.values.values():
            if len(next(iter(values.values()))) > 1:
                return self.leaves
            for node in self.nodes(depth):
                below = [leaf for leaf in self.leaves if leaf[:depth] == node]
                chosen |= {min(below, key=values.get), max(below, key=values.get)}
        return sorted(chosen) or self.leaves


class Guarantee(namedtuple("Guarantee", "kind value delta terms", defaults=(Fraction(0), ()))):
    """`mu`: value is mu squared. `rho`: value is rho. `epsilon`: value is epsilon, with delta, or
    the sum of the pure epsilons `terms` of a composition.
    """

    def __str__(self):
        value = math.sqrt(self.value) if self.kind == "mu" else float(self.value)
        tail = f", delta = {float(self.delta):.3g}" if self.delta else ""
        return f"{self.kind} = {value:.6g}{tail}"

    def to_json(self):
        """Exact fractions as text, under the names that release.json uses."""
        delta = {"delta": str(self.delta)} if self.kind == "epsilon" else {}
        return {{"mu": "mu_squared"}.get(self.kind, self.kind): str(self.value), **delta}


class Query(namedtuple("Query", "kind depths outcome rows space many", defaults=((), (), 0, 1))):
    """What was measured of the records of a `space` (0; 1 for the units of linked files): so many
    numbers of each cell.

    `table`: counts at some depths (0: not in it). `residual`: along every feature with depth > 0
    the mean of the siblings is subtracted; it is measured times the product of the sibling counts,
    which makes it whole. `sums`: of an outcome (a feature, and the name of its values) over the
    cells, for records with the labels in `rows`. `ranks`: numbers of values up to each, likewise.
    `cell`: the count of records with the labels in `rows`.
    """

    def role(self, f):
        """What a feature is in the query: a depth of a table or residual, or the outcome."""
        depth = self.depths[f] if f < len(self.depths) else 0  # outcomes were added later
        if self.outcome and self.outcome[0] == f:
            return ("value", depth, self.outcome[1])
        return ("residual" if self.kind == "residual" else "table", depth)

    def list_seen(self):
        """The features that matter."""
        return [f for f in range(len(self.depths)) if any(self.role(f)[1:])]


# Independent noise in every entry: the rule, and the kind of its guarantee. Its size is sigma
# squared, or the scale of Laplace noise; of choices it is what makes the norms of ranks costs.
# Canonical noise covers `moves` of x11 at the cost of epsilon (its size) and delta. Entries are
# rounded to 2^-bits.
Noise = namedtuple("Noise", "law kind size delta moves bits", defaults=(Fraction(0), 1, 0))


class Public(namedtuple("Public", "features n margins zeros")):
    """What everybody knows: the features, the number n of records, the exact margins (depths,
    counts by cell), and impossible combinations (depths; feature, depth and labels of each). A cell
    has a node of every feature.
    """

    @property
    def totals(self):
        """The margins, and n as one."""
        return [*self.margins, ((0,) * len(self.features), {((),) * len(self.features): self.n})]


# Which datasets are compared: any `a` records, or one person's exchange. `everyone`: the release
# says that a suffices for every person, so a must be at least a(t). `most` is the largest number of
# records of one person. Linked files protect a `member` or a whole
# `unit`; `units` are how many units may differ in features of their own, in these or their size, in
# anything.
PROMISE = "kind a everyone most protect least inherited derived units"
Promise = namedtuple("Promise", PROMISE, defaults=(1, "", 0, (), (), ()))

# One result: what was measured with which noise, its tables, what is stated, why it is not covered,
# what of the plan it answers, and the stems of its files with the columns that these begin with.
Part = namedtuple("Part", "name measured tables stated reason asked stems")

# A folder with its document, and the spaces of records.
Source = namedtuple("Source", "folder document spaces")

Release = namedtuple("Release", "spaces promise parts stated notes")

LAWS = {"rounded gaussian": ("rounded noise", "mu", "sigma2")}
LAWS |= {f"{law} gaussian": ("discrete noise", "rho", "sigma2") for law in ("discrete", "lattice")}
LAWS |= {"laplace": ("Laplace noise", "epsilon", "scale")}
CHOICES = {"permute and flip": "epsilon", "exponential (zCDP)": "rho", "exponential (GDP)": "mu"}

# The files that only tell about others, what reading may raise, and what names of results get.
TELLING = {"release.json", "report.html", "csv-metadata.json", "plan.json", "dataspace.json"}
TELLING |= {"parts.json", "map.json", "sdmx-structure.xml", "SHA256SUMS", "SHA256SUMS.minisig"}
TELLING |= {"tables.xlsx"}
DAMAGED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError)
DAMAGED += (csv.Error, zipfile.BadZipFile)
# what file browsers of macOS and Windows leave in folders
LITTER = {".ds_store", "thumbs.db", "desktop.ini"}
ADDED = ("", "-measurements", "-differences", "-quantiles", "-distribution")


def read_release(folder):
    """Read release.json; say what contradicts itself."""
    try:
        return build_release(Path(folder), load_document(Path(folder)))
    except DAMAGED:
        raise Unreadable(f"{folder} has damaged files, or is of another version") from None


def load_document(folder):
    """The document of a folder; large plans and dataspaces have files of their own."""
    read = functools.partial(json.loads, object_pairs_hook=build_object)
    try:
        document = read((folder / "release.json").read_text(encoding="utf-8"))
        for key in ("plan", "dataspace"):
            if document.get(key) == {"file": f"{key}.json"}:
                document[key] = read((folder / f"{key}.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise Unreadable(f"{folder} has no readable release.json: name a release") from None
    return document


def build_object(pairs):
    """A dictionary; one that names a key twice says different things to different readers."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def build_release(folder, document):
    """The release as plain values."""
    if "combination" in document or document["guarantee"] is None:
        raise NotCovered("a combination (check what it was made of), or nothing that is stated")
    plan, planned = document["plan"], Counter()
    spaces = read_spaces(document["dataspace"], plan)
    for key in dict(READERS.values()):
        planned.update((key, each["name"]) for each in plan.get(key, ()) if key != "table")
    for key, public in zip(("table", "unit_table"), spaces):
        tables = (depths_of(public, each["features"]) for each in plan.get(key, ()))
        planned.update((key, list_columns(public, depths)) for depths in tables)
    source = Source(folder, document, spaces)
    parts = read_parts(source)
    if not any(part.reason for part in parts):
        if planned != Counter(itertools.chain(*(part.asked for part in parts))):
            raise Unreadable("the results are not those that the plan names")
        check_files(source, parts)
    delta = min(Fraction(str(d["report_delta"])) for d in (document, {**document, **plan}))
    claims = [document[key] for key in ("guarantee", "budget") if document[key] is not None]
    stated, asked = [read_guarantee(claim) for claim in claims], plan.get("microdata", {})
    stated += [read_guarantee(asked, key) for key in ("mu", "rho", "epsilon") if key in asked]
    if any(g.kind == stated[0].kind and g.value > stated[0].value for g in stated[len(claims) :]):
        raise Unreadable("microdata state less than they may lose: other noise makes other bins")
    stated.append(Guarantee("epsilon", Fraction(document["epsilon"]), delta))
    notes = ["note: noise from a seed, so it is not private"] * (not document["private"])
    # a person's loss over periods is stated by the ledger, not by a release
    notes += ["note: the loss over periods is not covered: see the ledger"] * ("period" in plan)
    return Release(spaces, read_promise(plan, document, spaces), parts, stated, notes)


def read_parts(source):
    """All results of a document."""
    parts = []
    for key, entries in source.document.items():
        text = json.dumps(entries)
        if key in READERS:
            parts += [read_part(source, key, entry) for entry in entries]
        elif key != "plan" and (text.startswith("[{") or '"noise":' in text or '"law":' in text):
            parts.append(Part(key, [], [], [], "results of a kind that is unknown here", [], {}))
    return parts


def read_part(source, results, entry):
    """What was measured, what is stated of it, and what the plan gave it to spend."""
    plan, (key, read) = source.document["plan"], READERS[results]
    asked = [each for each in plan.get(key, []) if each.get("name") == entry["name"]]
    if len(asked) > 1 or json.dumps(entry).count('"noise":') > 1:
        raise Unreadable(f"the plan asks for {entry['name']} twice, or two results have this name")
    stated = [read_guarantee(entry["guarantee"]), read_guarantee(entry["budget"])]
    for name, each in itertools.product(("mu", "rho", "epsilon"), asked or [plan]):
        stated += [read_guarantee(each, name)] if name in each else []
    stems = {entry["name"] + end: () for end in ADDED if key != "table"}
    part = Part(entry["name"], [], [], stated, "", [(key, entry["name"])] * bool(stems), stems)
    try:
        if entry["noise"]["claim"] != "exact":
            raise NotCovered(f"{entry['noise']['mechanism']} makes an ideal claim")
        read(source, key, asked[0] if asked else {}, entry, part)
        law, kinds = entry["noise"]["law"], {query.kind for query, _ in part.measured}
        # some laws are for one kind of query, and this for them
        if (law in CHOICES, law == "canonical") != (kinds == {"ranks"}, kinds == {"cell"}):
            raise NotCovered(f"{part.name} with noise of the law {law!r}")
    except NotCovered as error:
        return part._replace(reason=str(error))
    return part


def read_spaces(document, plan):
    """The public facts of the records, or of the members and units of linked files."""
    described, spaces = [(document, plan.get("invariants", []))], []
    if "link" in document:
        described.append((document["units"], plan["units"].get("exact", [])))
    for space, planned in described:
        features = [read_feature(entry) for entry in space["schema"]["feature"]]
        once = [(k, leaf) for k, feature in enumerate(features) for leaf in feature.leaves]
        once += itertools.chain(*(feature.names for feature in features))
        if len(once) > len(set(once)):
            raise Unreadable("a feature or a level stands there twice")
        public = Public(features, whole_number(space["n"]), [], [])
        public.margins.extend(read_margin(public, margin) for margin in space["margins"])
        for zero in space["schema"].get("structural_zero", []):
            labels = [(*find_place(public, name), set(zero[name])) for name in zero]
            public.zeros.append((depths_of(public, zero), labels))
        check_agreement(public)
        asked = {depths_of(public, names) for names in planned}
        unplanned = {depths for depths, _ in public.margins} - asked
        if unplanned or not all(is_fixed(public, depths) for depths in asked):
            raise NotCovered("the exact totals are not those that the plan names")
        spaces.append(public)
    return spaces


def read_margin(public, margin):
    """The depths of an exact margin, and its counts by cell: a node of every feature."""
    depths = depths_of(public, margin["features"])
    order = list(dict.fromkeys(find_place(public, name)[0] for name in margin["features"]))
    cells, counts = [], [whole_number(count) for count in margin["counts"]]
    for nodes in itertools.product(*(public.features[f].nodes(depths[f]) for f in order)):
        cells.append(tuple(dict(zip(order, nodes)).get(f, ()) for f in range(len(depths))))
    if len(cells) != len(counts) or sum(counts) != public.n:
        raise Unreadable(f"the margin {margin['features']} does not fit its levels, or n")
    return depths, dict(zip(cells, counts))


def read_feature(entry):
    """A feature from its tree, levels or bins; `finer` has the labels of an outcome below them."""
    if "tree" in entry:
        return Feature(entry["nest"], list_paths(entry["tree"]))
    # every edge but the last begins a bin
    labels = [f"from {edge}" for edge in entry.get("bins", ())[:-1]]
    names, leaves = (entry["name"],), [(label,) for label in labels or entry["levels"]]
    leaves += [(entry.get("null_level"),)] * ((entry.get("null_level"),) not in [(None,), *leaves])
    if len(finer := entry.get("finer", {})) > 1:
        raise NotCovered("several outcomes below the levels of one feature")
    for name, below in finer.items():
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
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**18:
        raise Unreadable("a count is not a whole number from 0 to 10^18")
    return value


def read_positive(text):
    """A grid, or a scale of noise."""
    if not SMALL <= Fraction(text) <= 1 / SMALL:
        raise Unreadable("a grid or a scale of noise must be above 0, and a number that noise has")
    return Fraction(text)


def check_agreement(public):
    """Two margins must agree on what they share, or no dataset has both."""
    for (d, first), (e, second) in itertools.combinations(public.margins, 2):
        common = tuple(map(min, d, e))
        if roll_up(first, common) != roll_up(second, common):
            raise Unreadable("two exact margins contradict each other")


def roll_up(counts, depths):
    """Sum the counts of a margin over what a coarser one, at some depths, does not see."""
    total = Counter()
    for cell, count in counts.items():
        total[cell_at(cell, depths)] += count
    return +total


def read_promise(plan, document, spaces):
    """The adjacency; the plan and the stated a must be about the same one."""
    asked, a, space = plan.get("adjacency", "worst-case"), document["a"], document["dataspace"]
    person, link, planned = a.get("protection", {}), space.get("link", {}), plan.get("units", {})
    most, kind = person.get("most", 1), "exchange" if a.get("kind") == "exchange" else "ball"
    agrees = (kind == "exchange") == (asked == "exchange") and bool(link) == bool(planned)
    if link:
        for key in ("protect", "most", "least"):
            agrees = agrees and link[key] == planned[key] == person.get(key, link[key])
        computed = (each["name"] for each in plan.get("unit_feature", []))
        derived = {"size", *planned.get("derived", []), *computed}
        agrees = agrees and derived == {*link["derived"]} and "quarters" not in {**link, **planned}
    agrees = agrees and plan.get("most", 1) == (1 if link else most)
    agrees = agrees and asked in ("worst-case", "exchange", "definition", a["used"])
    # the definition needs two records where something is exact
    agrees = agrees and (asked != "definition" or a["used"] > bool(list_blocks(spaces[0])))
    agrees = agrees and document.get("persons", math.inf) * most >= space["n"]
    used, everyone = whole_number(a["used"]), asked in ("worst-case", "exchange")
    # so many records are drawn one by one
    if not agrees or used > 10**5 or not (link or person.get("protect", "unit") == "unit"):
        raise NotCovered("the plan and a name different promises, too many records, or no unit")
    if not link:
        return Promise(kind, used, everyone, whole_number(most))
    columns = set(itertools.chain(*(feature.names for feature in spaces[1].features)))
    kinds = ("own", "size", "derived")
    changed, derived = a.get("units", dict.fromkeys(kinds, 2 * used)), tuple(link["derived"])
    units = tuple(whole_number(changed[key]) for key in kinds)
    most, least = whole_number(link["most"]), whole_number(link["least"])
    inherited = tuple(sorted(columns - set(derived)))
    return Promise(kind, used, everyone, most, link["protect"], least, inherited, derived, units)


def read_noise(noise, choices=1):
    """The law of the noise with its exact size; see `prove_part` for choices."""
    law = noise["law"] if noise.get("mechanism", noise["law"]) == noise["law"] else "two laws"
    if law in LAWS:
        rule, kind, key = LAWS[law]
        return Noise(rule, kind, read_positive(noise[key]))
    if law == "canonical":
        moves, delta = whole_number(int(noise["moves"])), Fraction(noise.get("delta", 0))
        if "mu_squared" in noise:
            return Noise("rounded noise", "mu", moves**2 / read_positive(noise["mu_squared"]))
        return Noise("canonical noise", "epsilon", read_positive(noise["epsilon"]), delta, moves)
    if law not in CHOICES:
        raise NotCovered(f"noise of the law {law!r}")
    kind, rate = CHOICES[law], read_positive(noise["rate"])
    cost = {"epsilon": 2 * rate, "rho": rate**2, "mu": PI_HIGH / 2 * rate**2}[kind]
    return Noise("choices", kind, 1 / (cost * choices))


def read_tables(source, _, asked, entry, part):
    """A table, or several tables that share residuals; of linked files for both kinds."""
    described = [entry["members"], entry["units"]] if "members" in entry else [entry]
    part.stems["measurements" if part.name == "table" else f"{part.name}-measurements"] = ()
    law, has_residuals = entry["noise"]["law"], any(each.get("residuals") for each in described)
    if has_residuals != law.endswith("residuals") or len(described) > len(source.spaces):
        raise NotCovered(f"residuals, or units, with noise of the law {law!r}")
    if law != "no noise" and not has_residuals:
        query = Query("table", depths_of(source.spaces[0], entry["features"]))
        part.measured.append((query, read_noise(entry["noise"])))
    for space, (public, each) in enumerate(zip(source.spaces, described)):
        for table in [*each.get("tables", [each]), *(sums := each.get("overview", []))]:
            columns = list_columns(public, depths := depths_of(public, table["features"]))
            part.tables.append((space, depths))
            part.stems[table.get("name", "")] = columns
            # an overview sums parts, and nobody asked for it
            part.asked.extend([(("table", "unit_table")[space], columns)] * (table not in sums))
        for residual in each.get("residuals", []):
            query = Query("residual", depths_of(public, residual["features"]), space=space)
            noise = {"law": f"{each['law']} gaussian", **residual}
            part.measured.append((query, read_noise(noise)))


def list_columns(public, depths):
    """The columns that show the cells of a table."""
    return tuple(itertools.chain(*(f.names[:d] for f, d in zip(public.features, depths))))


def check_files(source, parts):
    """Every file belongs to one result or exact total, or tells about others: exact totals are
    those of the document, a table begins with its features, and CSV files show as many noisy
    numbers as were measured. Parquet files are not read.
    """
    folder, document, space = source.folder, source.document, source.document["dataspace"]
    stems, totals = dict(itertools.chain(*(part.stems.items() for part in parts))), {}
    for start, each in (("exact", space), ("exact-units", space.get("units", {"margins": ()}))):
        for margin in each["margins"]:
            plain = re.sub(r"[/\\\0]", "_", "-".join([start, *margin["features"]]))[:120]
            tried = (plain + f"-{k}" * (k > 1) for k in itertools.count(1))
            stem = next(s for s in tried if s.casefold() not in map(str.casefold, stems | totals))
            totals[stem] = margin["counts"]
    paths = (p for p in folder.rglob("*") if p.name.lower() not in LITTER and not p.is_dir())
    names = {*document.get("files", ()), *(p.relative_to(folder).as_posix() for p in paths)}
    known = {stem + end for stem in stems | totals for end in (".csv", ".sdmx.csv", ".parquet")}
    for name in sorted(names - TELLING):
        inside = name.rpartition("/")[2] if "partition" in document else name
        is_double = inside.endswith(".parquet") and f"{inside[:-8]}.csv" in names
        head = b"STRUCTURE" if inside.endswith(".sdmx.csv") else b""
        if inside not in known or is_double or not (folder / name).read_bytes().startswith(head):
            raise Unreadable(f"{name} belongs to no result and to no exact total")
    for stem, counts in totals.items():
        listed = [int(list(row.values())[-1]) for row in read_rows(folder, stem)]
        if listed and sorted(listed) != sorted(counts):
            raise Unreadable(f"{stem}.csv has other counts than release.json")
    for part in parts:
        columns, expected, listed = *list_numbers(source.spaces, part.measured), Counter()
        for stem, begins in part.stems.items():
            for row in read_rows(folder, stem):
                if {*list(row)[: len(begins)]} != {*begins}:
                    raise Unreadable(f"{stem}.csv shows other features than release.json")
                noisy = [c for c in row if c not in begins and c.startswith(("noisy", "steps_"))]
                listed[tuple(row.get(column, "member") for column in columns)] += len(noisy)
        has_bins = any(label.startswith("from ") for label in itertools.chain(*expected))
        fits = listed.total() <= expected.total() if has_bins or not columns else listed == expected
        if part.measured and listed.total() and not fits:
            raise Unreadable(f"the measured entries of {part.name} are not those of its levels")
    if (book := folder / "tables.xlsx").exists():
        sheets = zipfile.ZipFile(book).read("xl/workbook.xml").count(b"<sheet ")
        data = [s for s, begins in (stems | totals).items() if begins or s[-12:] != "measurements"]
        if sheets > 1 + sum(f"{stem}.csv" in names for stem in data):
            raise Unreadable("tables.xlsx shows more than the other files")


def read_rows(folder, stem):
    """The rows of a CSV file; none if it is missing."""
    if not (folder / f"{stem}.csv").exists():
        return []
    with open(folder / f"{stem}.csv", encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def list_numbers(spaces, measured):
    """The columns that tell measured numbers apart, and how many there are: of a table those of the
    cell (labels of bins are written in another way); of a residual, centered over the levels that
    can occur, which it is and by what its entries were multiplied; of others none.
    """
    columns, expected = (), Counter()
    for query, _ in measured:
        public, kind = spaces[query.space], ("member", "unit")[query.space]
        public = drop_empty_levels(public, spaces) if query.kind == "residual" else public
        names, columns = list_columns(public, query.depths), ("kind", "residual", "scale")
        columns = {"table": names, "residual": columns}.get(query.kind, ())
        depths = [d * all(f != g for g, *_ in query.rows) for f, d in enumerate(query.depths)]
        for cell in list_cells(public.features, depths):
            scale = math.prod(len(f.children[n[:-1]]) for f, n in zip(public.features, cell) if n)
            key = {"residual": (kind, " × ".join(names), str(scale)), "table": sum(cell, ())}
            expected[key.get(query.kind, ())] += query.many
    return columns, expected


def find_outcome(public, key, asked, entry):
    """The feature that an outcome is, and the name of its values; a new one if it is private."""
    column, _, level = asked["column"].partition("=")
    name, (find_vector, corners) = f"{key} {asked['name']}", describe_values(key, asked, entry)
    places = [f for f, feature in enumerate(public.features) if column in feature.names]
    number = places[0] if places else len(public.features)
    if not places:
        public.features.append(Feature((name,), [()]))
        for i, (depths, counts) in enumerate(public.margins):
            public.margins[i] = (*depths, 0), {(*cell, ()): k for cell, k in counts.items()}
    feature = public.features[number]
    if len(feature.leaves[0]) < len(feature.names):  # any value, below every level if there are any
        leaves = [(*leaf, f"{column} {k}") for leaf in feature.leaves for k in range(len(corners))]
        values = dict(zip(leaves, align_vectors(corners) * len(feature.leaves)))
        is_partial = key in ("quantile", "distribution")
        public.features[number] = Feature(feature.names, leaves, {name: values}, is_partial)
        return number, name
    if key in ("answered", "quantile"):
        raise NotCovered(f"{key} of {column!r}, which the public schema has as a feature")
    labels = [leaf[feature.names.index(column)] for leaf in feature.leaves]
    try:
        values = [Fraction(label == level) if level else Fraction(label) for label in labels]
        vectors = align_vectors([find_vector(value) for value in values])
    except ValueError:
        raise NotCovered(f"the levels of {column!r} are no values on its grid") from None
    feature.values[name] = dict(zip(feature.leaves, vectors))
    return number, name


def describe_values(key, asked, entry):
    """What a value adds to the sums, as a function, and what the farthest values add."""
    is_binary = asked.get("statistic") == "proportion" or asked.get("model") == "logistic"
    low, high = map(Fraction, asked.get("bounds", ["0", "1"] if is_binary else None))
    edges, halves, steps = [], [], whole_number(asked.get("grid", 1 if is_binary else None))
    corners = [{0: 0}, {0: int(read_positive(steps))}]
    if key == "distribution":
        middles = [low + (high - low) * Fraction(2 * k + 1, 2 * steps) for k in range(steps)]
        edges = sorted({*middles, *map(Fraction, asked.get("lines", []))})
        halves = add_differences(len(edges) + 1)
        corners = [halves[0], halves[(len(halves) + 1) // 2]]  # the deepest of both halves
    elif key == "quantile":
        corners = [{0: k} for k in range(1 + min(2, steps))]
    elif key == "answered":
        half = int(read_positive(entry["noise"]["fineness"])) * steps
        weight = int(read_positive(entry["noise"]["weight"]))
        corners = [{}, {0: weight, 1: -half}, {0: weight, 1: half}]

    def find_vector(value):
        step = (min(max(value, low), high) - low) / (high - low) * steps
        if step.denominator != 1:
            raise ValueError
        return halves[sum(edge <= value for edge in edges)] if halves else {0: int(step)}

    return find_vector, corners


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


def align_vectors(vectors):
    """Dictionaries as tuples over all their keys."""
    keys = sorted(set(itertools.chain(*vectors)))
    return [tuple((dict.fromkeys(keys, 0) | vector).values()) for vector in vectors]


def read_sums(source, key, asked, entry, part):
    """Sums of what an outcome adds, by sets of groups: sums, means, proportions, the numbers who
    answered with their sums, differences of halves, and numbers of values up to each.
    """
    public = source.spaces[0]
    outcome = find_outcome(public, key, asked, entry)
    kind = "ranks" if key == "quantile" else "sums"
    many = {"quantile": len(asked.get("probabilities", [])) * (3 if "level" in asked else 1)}
    many |= {"distribution": asked.get("grid", 0) + len(asked.get("lines", ())), "answered": 2}
    noise = read_noise(entry["noise"], many.get(key, 1))
    rows = ((*find_place(public, asked["answered"]), "yes"),) if "answered" in asked else ()
    for names in asked["by"]:
        if asked.get("answered", names) not in (names, *names):
            raise NotCovered("groups do not say how many records have an outcome")
        depths = depths_of(public, names)
        part.measured.append((Query(kind, depths, outcome, rows, 0, many.get(key, 1)), noise))
        stem = "-".join([part.name, "by", *(n for n in names if n != asked.get("answered"))])
        part.stems.update({stem + end: () for end in ADDED})


def read_regression(source, key, asked, entry, part):
    """Sums by groups. What other designs measure, X'y, is not covered."""
    query, public = entry["query"], source.spaces[0]
    if query["kind"] != "sums":
        raise NotCovered("a design that is not measured by groups")
    agrees = [query[each] == asked.get(each, query[each]) for each in ("column", "bounds", "grid")]
    if not all(agrees) or not set(asked["factors"]) <= set(itertools.chain(*query["by"])):
        raise Unreadable("a regression measures something else than the plan asks for")
    for first, second in itertools.product(query["by"], repeat=2):  # X'X is published exactly
        if not is_fixed(public, depths_of(public, [*first, *second])):
            raise NotCovered("a design whose products of columns exact totals do not sum")
    read_sums(source, key, {**asked, "by": query["by"]}, entry, part)


def read_odds_ratio(source, _, asked, entry, part):
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


READERS = dict.fromkeys(("tables", "products", "partitioned", "linked"), ("table", read_tables))
READERS |= {f"{key}s": (key, read_sums) for key in ("group", "quantile", "distribution")}
READERS |= {"answers": ("answered", read_sums), "odds_ratios": ("odds_ratio", read_odds_ratio)}
READERS |= {"regressions": ("regression", read_regression)}

STATED = {"gaussian": "mu_squared", "gdp": "mu", "zcdp": "rho"}
STATED |= {"pure": "epsilon", "approximate": "epsilon"}


def read_guarantee(document, key=None):
    """A stated guarantee or a budget, under the key of its kind. Texts are exact, and floats are
    read up to their last digits; composed curves are checked through their parts.
    """

    def number(key):
        value = Fraction(document.get(key, 0))
        if not 0 <= value <= 1 / SMALL:
            raise Unreadable("a guarantee is below 0, or no number that a guarantee has")
        return value * (1 + Fraction(1, 10**12)) if isinstance(document.get(key), float) else value

    key = key or STATED.get(document["kind"])
    if document.get("kind") == "composed":
        parts = [read_guarantee(part) for part in document["parts"]]
        if {(part.kind, part.delta) for part in parts} == {("epsilon", 0)}:
            return compose(parts)
    elif key in ("mu", "mu_squared"):
        return Guarantee("mu", number(key) ** (2 if key == "mu" else 1))
    elif key and document.get("group", 1) == 1:
        return Guarantee(key, number(key), number("delta") if key == "epsilon" else Fraction(0))
    raise NotCovered(f"a guarantee of the kind {document['kind']!r}")


# --- 4 the public facts: what can occur, and what the totals fix ---------------------------------


def drop_empty_levels(public, spaces=()):
    """The same public facts without the levels that a published count of 0 rules out, here and in
    other spaces (both kinds of linked files have the same levels); a feature of which one node is
    left is in no margin.
    """
    features = []
    for feature in public.features:
        kept = (list_inhabited_leaves(space, feature.names) for space in (public, *spaces))
        leaves = filter(set(itertools.chain(*kept)).__contains__, feature.leaves)
        features.append(Feature(feature.names, leaves, feature.values, feature.is_partial))
    visible = [(show_depths(features, depths), counts) for depths, counts in public.margins]
    margins = [(depths, roll_up(counts, depths)) for depths, counts in visible]
    return public._replace(features=features, margins=margins)


def list_inhabited_leaves(public, names):
    """The leaves of a feature that a space can have; none if it has no such feature."""
    for number, feature in enumerate(public.features):
        leaves = feature.leaves if feature.names == names else ()
        for depths, counts in public.margins:
            inhabited = {cell[number] for cell, count in counts.items() if count}
            leaves = [leaf for leaf in leaves if leaf[: depths[number]] in inhabited]
        yield from leaves


def show_depths(features, depths):
    """The depths of a table without the features that have one node there."""
    return tuple(d if len(f.nodes(d)) > 1 else 0 for f, d in zip(features, depths))


def cell_at(record, depths):
    """The cell of a record in the table at some depths: a node of every feature."""
    return tuple(leaf[:depth] for leaf, depth in zip(record, depths))


def count_cells(records, depths):
    """The table of some records at some depths."""
    return Counter(cell_at(record, depths) for record in records)


def list_cells(features, depths):
    """All cells of a table, whether or not they can occur together."""
    return itertools.product(*map(Feature.nodes, features, depths))


def is_possible(public, record):
    """Whether every published count of the record is positive and no structural zero forbids it."""
    for _, zero in public.zeros:
        if all(record[f][depth - 1] in labels for f, depth, labels in zero):
            return False
    return all(cell_at(record, depths) in counts for depths, counts in public.margins)


def maximal_margins(public):
    """The margins that no other one contains: `state` goes where `county` or `state x sex` is."""
    kept = []
    for depths, counts in sorted(public.margins, key=lambda margin: -sum(margin[0])):
        if any(depths) and not any(is_below(depths, larger) for larger, _ in kept):
            kept.append((depths, counts))
    return kept


def list_blocks(public):
    """The maximal margins with at least two inhabited values."""
    return [(depths, counts) for depths, counts in maximal_margins(public) if len(counts) > 1]


def meet(depths, others):
    """Whether two tables have a feature in common."""
    return any(map(int.__mul__, depths, others))


def is_below(depths, larger):
    """Whether a table follows from a larger one."""
    return all(map(int.__le__, depths, larger))


def are_disjoint(margins):
    """Whether no feature (whole chain) lies in two margins."""
    return not any(meet(d, e) for (d, _), (e, _) in itertools.combinations(margins, 2))


def fixed_counts(public, depths):
    """The counts of a table that follows from one exact margin, or from n; else None."""
    visible = show_depths(public.features, depths)
    larger = (counts for margin, counts in public.totals if is_below(visible, margin))
    return next((roll_up(counts, visible) for counts in larger), None)


def is_fixed(public, depths):
    """Whether a table follows from one exact margin, or from n."""
    return fixed_counts(public, depths) is not None


# --- 5 reach: how many records change together ---------------------------------------------------


# The a of the proof with its rule, the units of linked files, the a of the hunt, and what is wrong.
Reach = namedtuple("Reach", "a units hunted rule reason")


def settle_reach(spaces, promise):
    """How many records change together: a promise to everyone is about a(t)."""
    public, stated, units, hunted = spaces[0], promise.a, promise.units, promise.a
    if len(spaces) > 1:
        needed, units, rule = find_linked_reach(spaces, promise)
    elif promise.kind == "exchange":
        check_exchange_conditions(public)
        needed, rule = stated, "reach by exchange"
    else:
        low, needed, rule = find_reach(public, promise.most)
        hunted = max(stated, low) if promise.most == 1 else stated
        if needed is None:
            return Reach(stated, (), stated, rule, f"no rule for a(t); {stated} is stated")
        needed = max(stated, min(needed * promise.most, public.n))
    if not promise.everyone:
        return Reach(stated, promise.units, stated, "given", "")
    agrees = (needed, units) == (stated, promise.units)
    reason = "" if agrees else f"{rule}: {needed} records change together, {stated} are stated"
    return Reach(needed, units, hunted, rule, reason)


def find_reach(public, most=1):
    """Return bounds of a(t), the fewest records that always suffice to turn anybody into anybody
    possible, and the rule. Blocks are the margins with two inhabited values.
    """
    q = len(margins := list_blocks(public))
    if not q:
        return 1, 1, "reach, nothing exact"
    if are_disjoint(margins) and not public.zeros:
        if sum(min(counts.values()) for _, counts in margins) <= public.n - 1:
            return q + 1, q + 1, "reach"
        # that a(t) <= q is about these totals only, and not about those that several records leave
        return 1, q + (most > 1), "reach, rarest totals overlap"
    if not public.zeros and is_decomposable([list_variables(depths) for depths, _ in margins]):
        return 1, q + 1, "reach, junction tree"
    if q <= 2 and are_disjoint(margins):
        return 1, 1 + (min(len(counts) for _, counts in margins) if q == 2 else 1), "reach, zeros"
    if sizes := find_circle(public, [depths for depths, _ in margins]):
        return 1, 1 + 2 * sizes[1], "reach, circle"
    return 1, None, "reach by listing"


def list_variables(depths):
    """The variables of a margin: depth k of a feature counts as k of them."""
    return {(f, k) for f, depth in enumerate(depths) for k in range(depth)}


def find_circle(public, margins):
    """The numbers of levels, in order, of three features of which all pairs are exact and one has
    two levels; else nothing. Then a move of three-way tables is (u, -u), u a two-way table.
    """
    depths = list(map(max, *margins)) if len(margins) == 3 else []
    used = [f for f, depth in enumerate(depths) if depth]
    sizes = sorted(len(public.features[f].nodes(depths[f])) for f in used)
    are_pairs = all(sum(map(bool, margin)) == 2 for margin in margins)
    return sizes if are_pairs and len(used) == 3 and sizes[0] == 2 else []


def is_decomposable(sets):
    """Whether sets of variables form a junction tree: take away one whose overlap with all others
    lies in one of them, until one is left.
    """
    for leaf in sets:
        remaining = [each for each in sets if each is not leaf]
        if any(leaf & set().union(*remaining) <= each for each in remaining):
            return is_decomposable(remaining)
    return len(sets) < 2


def check_exchange_conditions(public):
    """Disjoint blocks, and zeros only between published values of one block."""
    blocks = list_blocks(public)
    inside = (any(is_below(zero, depths) for depths, _ in blocks) for zero, _ in public.zeros)
    if not are_disjoint(blocks) or not all(inside):
        raise NotCovered("exchange with overlapping exact margins, or zeros outside one of them")


def find_linked_reach(spaces, promise):
    """What linked files need, at least what is stated: members, and units in features of their own,
    in these or their size, in anything; and the rule.
    """
    (blocks, unit_blocks), inherited = map(list_blocks, spaces), is_inherited(spaces[0], promise)
    own = [not place for place in inherited]
    placed = sum(meet(depths, inherited) for depths, _ in blocks)
    handed = sum(meet(depths, own) for depths, _ in blocks)
    is_unit, rule = promise.protect == "unit", "reach, linked files"
    overlap = not are_disjoint(blocks) or (is_unit and not are_disjoint(unit_blocks))
    # a total of what derives from members ties members together
    exact = (f.names for s in spaces for d, _ in s.margins for f, k in zip(s.features, d) if k)
    overlap = overlap or not {*promise.derived}.isdisjoint(itertools.chain(*exact))
    if any(map(has_impossible_cells, spaces)) or overlap or placed > (not is_unit):
        raise NotCovered("linked files with impossible combinations, or such exact margins")
    a, units = 2 + handed, (4 + 2 * handed,) * 3
    if is_unit:
        q, p, most, rule = len(blocks), 1 + len(unit_blocks), promise.most, "reach, whole units"
        a, units = most * (q + p), (p, p + most - promise.least, p + most * (1 + q))
    units = [min(k, spaces[1].n) for k in units]
    return max(promise.a, min(a, spaces[0].n)), tuple(map(max, units, promise.units)), rule


def has_impossible_cells(public):
    """Whether a structural zero or an empty cell of an exact margin rules out a combination."""
    sizes = [len(list(list_cells(public.features, depths))) for depths, _ in public.margins]
    return bool(public.zeros) or any(len(c) < size for (_, c), size in zip(public.margins, sizes))


def is_inherited(members, promise):
    """Of every feature of members, whether it is one of their unit."""
    return [not set(f.names).isdisjoint(promise.inherited) for f in members.features]


# --- 6 moves and their worst costs ---------------------------------------------------------------
#
# A pair of the promise differs in a few records. A *move* lists them before (sign -1) and after
# (sign +1). On every feature the records have *letters*: records with the same letter have the same
# leaf there; conditions say which letters must agree or differ at a published depth. The worst cost
# over all ways to put letters on leaves is at least that of every real pair, because every real
# pair is one of these ways. (Small counts of t are ignored: that can only make it larger.)


# `slots`: (sign, letter on each feature); `conditions`: (feature, two letters, depth, whether they
# agree there or differ).
Move = namedtuple("Move", "slots conditions")


class TooMany(Exception):
    """More patterns than the checker lists; a coarser rule is used."""


def exchange_moves(blocks, seen, inherited=(), makers="nobody"):
    """The moves of one exchange, as a table over the features `seen` sees them.

    *Exchange.* One person goes from x to a possible y. For every block whose published
    tuples differ between x and y, a carrier (another record, with y's whole tuple there) takes x's
    leaf on exactly those features of the block whose published nodes differ. One carrier may serve
    several blocks. Nothing else changes. The reverse direction has the same cost.

    *Linked files.* Some features are those of a unit, and x may go to another unit v. A carrier of
    such features takes x's whole place. A member of v may have to make room, and goes to the place
    that is free: nobody, a carrier of other features, or somebody else (`anybody`: all of these).
    If `another` one always does (to hunt), every unit keeps its size. Where only features of units
    change, two may also change places, and nobody else is needed.
    """
    of_unit = {f for f, is_place in enumerate(inherited) if is_place}
    seen = sorted(of_unit.union(seen))  # a place is seen as a whole, or not at all
    touched = list(filter(None, (keep_seen(block, seen) for block in blocks)))
    for changed in itertools.product(*map(list_subsets, touched)):
        fixed, carried = [], [k for k, features in enumerate(changed) if features]
        for block, features in zip(touched, changed):
            fixed += [(f, 0, 1, depth, f not in features) for f, depth in block.items()]
        placed = [k for k in carried if makers != "another" or not set(touched[k]) <= of_unit]
        for groups in itertools.chain(*map(set_partitions, {tuple(carried), tuple(placed)})):
            same, taken, new = [], {}, len(groups) + 2
            for letter, numbers in enumerate(groups, start=2):
                taken[letter] = {f for number in numbers for f in changed[number]}
                pairs = itertools.chain(*(touched[number].items() for number in numbers))
                same += [(f, 1, letter, depth, True) for f, depth in pairs]
            free = next((letter for letter in taken if taken[letter] & of_unit), 0)
            others = [*sorted(taken.keys() - {free}), new]
            for maker in {"nobody": [0], "another": others}.get(makers, [0, *others]):
                slots = [(-1, dict.fromkeys(seen, 0)), (1, dict.fromkeys(seen, 1))]
                for letter in range(2, new + (maker == new)):
                    before = dict.fromkeys(seen, letter)
                    after = before | dict.fromkeys(taken.get(letter, ()), 0)
                    before |= dict.fromkeys(of_unit, 1) if letter == maker else {}
                    place = {free: 0, maker: free}.get(letter, letter)
                    after |= dict.fromkeys(of_unit, place)
                    slots += [(-1, before), (1, after)]
                yield Move(slots, fixed + same)


def unit_moves(units, _, seen):
    """How the sizes of units change when one member is exchanged, as a table over `seen` sees them:
    one unit has a member less, and one a member more (or none, where somebody makes room).
    """
    size = next((f for f, each in enumerate(units.features) if each.names == ("size",)), -1)
    slots = [(2 * (k % 2) - 1, dict.fromkeys(seen, k // 2) | {size: k}) for k in range(4)]
    for is_same in (True, False):  # two units of one size end with two sizes
        ends = [(size, 0, 2, 1, is_same), (size, 1, 3, 1, False)][: 1 + is_same]
        yield Move(slots, [*ends, (size, 0, 1, 1, False), (size, 2, 3, 1, False)])


def keep_seen(block, seen):
    """The depths of a block by those of its features that are seen."""
    return {f: block[f] for f in seen if block[f]}


def ball_move(margins, seen, orders):
    """Any a records change: x_i becomes y_i, and every published margin of the y_i is that of the
    x_i, so some order of the records matches them: y_i has the published value of x_order[i].
    """
    a, conditions = len(orders[0]), []
    slots = [(-1 if i < a else 1, dict.fromkeys(seen, i)) for i in range(2 * a)]
    for block, order in zip(margins, orders):
        for i, f in itertools.product(range(a), keep_seen(block, seen)):
            conditions.append((f, order[i], a + i, block[f], True))
    return Move(slots, conditions)


def ball_moves(margins, seen, a):
    """All such moves. Records can be renamed: the order of one margin is taken as it is."""
    touched = [block for block in margins if keep_seen(block, seen)]
    for orders in itertools.product(itertools.permutations(range(a)), repeat=len(touched[1:])):
        yield ball_move(touched, seen, [tuple(range(a)), *orders])


def list_subsets(items):
    """All subsets of a collection, the empty one included."""
    return itertools.chain(*(itertools.combinations(items, k) for k in range(len(items) + 1)))


def set_partitions(items):
    """All ways to split a list into groups."""
    if not items:
        yield []
        return
    first, *remaining = items
    for groups in set_partitions(remaining):
        yield [[first], *groups]
        for number, group in enumerate(groups):
            yield [*groups[:number], [first, *group], *groups[number + 1 :]]


def find_shape(feature, node, depth):
    """The tree below a node down to a depth as nested tuples: siblings can be renamed."""
    below = feature.children[node] if len(node) < depth else ()
    return tuple(sorted(find_shape(feature, child, depth) for child in below))


def placements(tree, letters):
    """Every way, up to renaming siblings, to put letters on leaves of a tree. A place is a path of
    (child, number of siblings).
    """
    if not tree:
        yield dict.fromkeys(letters, ())
        return
    for groups in set_partitions(letters):
        for chosen in itertools.product(set(tree), repeat=len(groups)):
            if Counter(chosen) <= Counter(tree):
                below = [list(placements(shape, group)) for shape, group in zip(chosen, groups)]
                for combination in itertools.product(*below):
                    place = {}
                    for child, paths in enumerate(combination):
                        place |= {k: ((child, len(tree)), *path) for k, path in paths.items()}
                    yield place


def kernel(feature, role, first, second):
    """How much two records of opposite sign cancel along one feature; places are paths of (label,
    number of siblings). In units of 1 / `find_scale`, which makes it whole.

    Table: 1 if they share the node at this depth. Residual: the inner product of two centred unit
    vectors, 1 - 1/c for the same node, -1/c for siblings, 0 if they part above. Depth 0: 1.
    Outcome: the inner product of the two values, if they share the group at this depth.
    """
    kind, depth, *outcome = role
    together = first[:depth] == second[:depth]
    if outcome:
        vectors = [feature.values[outcome[0]][next(zip(*place))] for place in (first, second)]
        return sum(map(int.__mul__, *vectors)) * together
    if kind == "table" or depth == 0 or first[: depth - 1] != second[: depth - 1]:
        return int(together)
    scale = find_scale(feature, role)
    return scale * together - scale // first[depth - 1][1]


@functools.cache
def find_scale(feature, role):
    """What makes the kernels of a feature whole: all sibling counts at the depth divide it."""
    sizes = [len(c) for node, c in feature.children.items() if len(node) == role[1] - 1]
    return math.lcm(*sizes) if role[0] == "residual" else 1


class WorstCost:
    """The largest weighted cost of a list of moves, by listing all placements of their letters.

    The cost of a move m is the sum over measured queries of weight x |query(m)|^2, and
    |query(m)|^2 is the sum over pairs of records of sign x sign x the product of kernels. All in
    whole numbers: kernels times sibling counts, weights times a common denominator.
    """

    def __init__(self, features, weighted, limit=1_000_000):
        self.features, self.limit, self.best, self.groups = features, limit, 0, {}
        seen, exact = itertools.chain(*(q.list_seen() for q, _ in weighted)), Counter()
        self.seen = sorted(set(seen))
        for query, weight in weighted:
            scales = [find_scale(features[f], query.role(f)) for f in query.list_seen()]
            exact[query] += Fraction(weight) / math.prod(scales)
        self.denominator = math.lcm(*(weight.denominator for weight in exact.values()))
        for query, weight in exact.items():  # together with queries of the same features
            group = self.groups.setdefault(tuple(query.list_seen()), [])
            group.append((query, int(weight * self.denominator)))

    def find_largest(self, moves):
        """The largest cost over all moves."""
        for move in moves:
            self._search(move)
        return Fraction(self.best, self.denominator)

    def _spend(self, steps):
        self.limit -= steps
        if self.limit < 0:
            raise TooMany

    def _search(self, move):
        """Choose a placement for each feature; give up where the queries cannot reach the best."""
        signs = [sign for sign, _ in move.slots]
        pairs = list(itertools.combinations_with_replacement(range(len(signs)), 2))
        factors = [signs[i] * signs[j] * (1 + (i != j)) for i, j in pairs]
        options = {f: self._options(f, move, pairs) for f in self.seen}
        order = sorted(self.seen, key=lambda f: len(options[f]))

        trees = []
        for seen, group in self.groups.items():
            features = [f for f in order if f in seen]
            trees.append((features, self._list_costs(group, features, options, factors)))

        def choose(chosen):
            self._spend(1 + len(trees) // 2)
            bound = 0
            for features, largest in trees:
                bound += largest.get(tuple(chosen[f] for f in features if f in chosen), 0)
            if bound > self.best and len(chosen) == len(order):
                self.best = bound
            elif bound > self.best:
                feature = order[len(chosen)]
                for number in range(len(options[feature])):
                    choose({**chosen, feature: number})

        choose({})

    def _list_costs(self, group, features, options, factors):
        """The costs of some queries by the numbers of the options that are chosen for their
        features; for the first few features the largest cost that can follow.
        """
        largest = {}
        for chosen in itertools.product(*(range(len(options[f])) for f in features)):
            self._spend(len(group) * (1 + len(factors) // 20))
            cost = 0
            for query, weight in group:
                products = factors
                for f, number in zip(features, chosen):
                    products = list(map(int.__mul__, products, options[f][number][query.role(f)]))
                cost += weight * sum(products)
            for k in range(len(chosen) + 1):
                largest[chosen[:k]] = max(cost, largest.get(chosen[:k], cost))
        return largest

    def _options(self, f, move, pairs):
        """For every placement along one feature, the kernels of all pairs of records."""
        feature, letters = self.features[f], [letter_of[f] for _, letter_of in move.slots]
        # who makes room has the place of y, and no letter there
        conditions = [c[1:] for c in move.conditions if c[0] == f and {*c[1:3]} <= {*letters}]
        roles = list({q.role(f): None for q, _ in itertools.chain(*self.groups.values())})
        has_values = any(role[0] == "value" for role in roles)
        deepest = max([depth for _, _, depth, _ in conditions] + [role[1] for role in roles])
        joined = {letter: letter for letter in letters}
        for a, b, depth, is_same in conditions:
            if is_same and depth == (len(feature.names) if has_values else deepest):
                old, new = joined[b], joined[a]  # one letter will do
                joined = {k: new if v == old else v for k, v in joined.items()}
        distinct, options = sorted(set(joined.values())), set()
        if has_values:
            ends = [feature.path(leaf) for leaf in feature.corners(deepest)]
            chosen = itertools.product(ends, repeat=len(distinct))
            places = (dict(zip(distinct, paths)) for paths in chosen)
        else:
            places = placements(find_shape(feature, (), deepest), distinct)
        for place in places:
            self._spend(1 + len(pairs) // 10)
            at = {letter: place[joined[letter]] for letter in joined}
            if all((at[a][:depth] == at[b][:depth]) == same for a, b, depth, same in conditions):
                ends = [(at[letters[i]], at[letters[j]]) for i, j in pairs]
                option = {}
                for role in roles:
                    option[role] = tuple(kernel(feature, role, *both) for both in ends)
                options.add(tuple(option.items()))
        return list(map(dict, options))


def measure_distance(first, second):
    """The sum of absolute and of squared differences of two vectors."""
    differences = [p - q for p, q in zip(first, second)]
    return sum(map(abs, differences)), sum(d * d for d in differences)


class Costs:
    """Upper bounds, by rules, of how far pairs of the promise move what was measured."""

    def __init__(self, public, promise, a, moves=None):
        self.public, self.promise, self.a, self.moves, self.rules = public, promise, a, moves, {}
        self.is_exchange = promise.kind == "exchange"
        self.times = promise.most if self.is_exchange else 1
        self.margins = [depths for depths, _ in list_blocks(public)]
        self.norms = functools.cache(self._norms)

    def bound(self, weighted):
        """The largest sum of weight x |query|^2 over the pairs of the promise: at most the sum of
        the worst costs of each query; all queries at once where the patterns are few.
        """
        apart = sum(self.norms(query)[1] * weight for query, weight in weighted)
        together = [(query, weight) for query, weight in weighted if self.norms(query)[1]]
        if len(together) < 2 or not {q.kind for q, _ in together} <= {"residual", "sums"}:
            return apart
        return self._least({"sum of costs": apart, **self._listed_bounds(together)})

    def _least(self, bounds):
        """The least of some bounds; its rule is noted."""
        rule = min(bounds, key=bounds.get)
        self.rules[rule] = None
        return bounds[rule]

    def _norms(self, query):
        """Bounds of the sum of absolute changes of a query, and of |query|^2; None: unknown."""
        is_count = query.kind in ("table", "residual")
        if is_count and is_fixed(self.public, query.depths):
            return 0, Fraction(0)
        finders = {"sums": self._bound_sums, "ranks": self._bound_sums, "cell": self._bound_cell}
        length, square, rule = finders.get(query.kind, self._bound_table)(query)
        bounds = {} if square is None else {rule: Fraction(square * self.times**2)}
        if is_count or (query.kind == "sums" and not bounds):
            bounds = {**self._listed_bounds([(query, Fraction(1))]), **bounds}
        if not bounds:
            raise NotCovered("an outcome that exact totals show, with too many patterns")
        self.rules |= {"several records": None} if self.times > 1 else {}
        least = self._least(bounds)
        if not least and not self.is_exchange and query.kind == "table":
            raise NotCovered("a table that no exact total fixes, and too few records to change it")
        # whole numbers are no longer than their squares
        length = min(length, least / self.times**2) if query.kind == "table" else length
        return None if length is None else length * self.times, least

    def _bound_table(self, query):
        """*Exchange norms* of a table that touches q blocks, or *ball norms*. A residual is no
        longer than its table (theorem residual_shortens).
        """
        if self.is_exchange:
            q = sum(meet(margin, query.depths) for margin in self.margins)
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
        for f, _, label in query.rows:  # a level that is the only one is not in the cells
            counts = {cell: k for cell, k in counts.items() if cell[f][-1:] in ((label,), ())}
        vectors = set(self.public.features[number].values[name].values())
        far, square = map(max, zip(*(measure_distance(p, q) for p in vectors for q in vectors)))
        rule = "replaced values" if len(next(iter(vectors))) > 1 else "sums"
        if query.kind == "ranks":
            far, square, rule = 1, 1, "ranks"
        replaced, left = [], self.a  # as unequally as the groups allow
        for size in sorted(counts.values(), reverse=True):
            replaced.append(min(size, left))
            left -= replaced[-1]
        if self.is_exchange:
            rule = "sums by exchange" if rule == "sums" else rule
            replaced = [1] * min(2, len(counts))
        return far * sum(replaced), square * sum(k * k for k in replaced), rule

    def _bound_cell(self, query):
        """If both margins of a 2 x 2 table are fixed in every stratum, all four cells of a stratum
        move by the same number: x11 by at most a quarter of all absolute changes.
        """
        length, _ = self.norms(query._replace(kind="table", rows=()))
        return length // 4, (length // 4) ** 2, "one cell"

    def _listed_bounds(self, weighted):
        """Bounds by listing placements: of all moves, and for the ball of single moves.

        *Pairing*: pair the records of a move by one margin; then the move is a sum of a single
        moves that keep this margin, and its norm is at most a times the worst of them.
        """
        seen, bounds = WorstCost(self.public.features, weighted).seen, {}
        if any(self.public.features[f].is_partial for f in seen):
            return {}
        options = [("patterns", self.times, exchange_moves(self.margins, seen))]
        if self.moves:
            options = [("one member", 1, self.moves(self.margins, seen))]
        elif not self.is_exchange:
            options = [("patterns", 1, ball_moves(self.margins, seen, self.a))][: self.a <= 4]
            for margin in [*self.margins, (0,) * len(self.public.features)]:
                options.append(("pairing", self.a, [ball_move([margin], seen, [(0,)])]))
        for rule, times, moves in options:
            try:
                cost = WorstCost(self.public.features, weighted).find_largest(moves) * times**2
                bounds[rule] = min(cost, bounds.get(rule, cost))
            except TooMany:
                continue
        return bounds


def ball_norms(public, margins, depths, a):
    """D1, D2^2 and the rule of a table when any a records change.

    Roll the margins up to the table. A feature that the table shows deeper than every margin is
    unpublished: D2^2 <= 2a^2. Otherwise, with w margins that show every feature at least r times
    (a fractional cover of weight w/r), k = floor(a(1 - r/w)), g(s) = floor(a/s) s^2 + (a mod s)^2:
    D2^2 <= max g(s) + g(u) over 1 <= u <= s <= k, s + u <= a. With two blocks, one of two values,
    an odd a counts as a - 1 (theorem parity).
    """
    visible = [f for f, d in enumerate(depths) if d and len(public.features[f].nodes(d)) > 1]
    covers, levels = Counter(), []
    for margin in margins:
        shown = [f for f in visible if margin[f] >= depths[f]]
        covers.update(shown)
        if shown:
            levels.append(math.prod(len(public.features[f].nodes(depths[f])) for f in shown))
    if not all(covers[f] for f in visible):
        return 2 * a, 2 * a * a, "ball norms, free"
    rule, times, weight = "ball norms", 1, Fraction(len(levels), min(covers.values()))
    rolled = [tuple(map(min, margin, depths)) for margin in margins]
    if len(visible) == 3 and len(levels) == 3 and find_circle(public, rolled):
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
    if not part.measured:
        return Guarantee("mu", Fraction(0))
    query, noise = part.measured[0]
    if {other.kind for _, other in part.measured} != {noise.kind}:
        raise NotCovered("different laws of noise in one result")
    if noise.law == "canonical noise":
        times = -(-find_costs(query).norms(query)[0] // noise.moves)
        if times > 1 and noise.delta:
            raise NotCovered("canonical noise with delta that x11 outgrows")
        return Guarantee("epsilon", noise.size * times, noise.delta * min(times, 1))
    value, groups = Fraction(0), {}
    for query, noise in part.measured:
        groups.setdefault(find_costs(query), []).append((query, 1 / noise.size))
    for costs, weighted in groups.items():
        if noise.kind != "epsilon":
            value += costs.bound(weighted)
            continue
        for query, weight in weighted:
            length, _ = costs.norms(query)
            if length is None:
                raise NotCovered("Laplace noise on sums of an outcome that exact totals show")
            value += length * weight
    return Guarantee(noise.kind, value / (2 if noise.kind == "rho" else 1))


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
            if (space, depths) in measured or is_centered_away(costs.public, depths):
                continue
            if is_fixed(costs.public, depths):
                costs.rules["exact totals"] = None
            elif not costs.is_exchange or costs.norms(query)[1]:
                raise NotCovered("a residual is neither measured nor fixed by an exact total")


def list_below(depths):
    """All depth vectors below one."""
    return itertools.product(*(range(d + 1) for d in depths))


def is_centered_away(public, depths):
    """Whether every node at the depth of some feature is an only child: its residual is 0."""
    return any(d and find_scale(f, ("residual", d)) == 1 for f, d in zip(public.features, depths))


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
    if stated.kind != "epsilon":  # neither rho nor epsilon is turned into mu here
        return stated.kind == "rho" and not proved.delta and as_rho(proved) <= stated.value
    if proved.kind == "mu":
        return gaussian_delta(proved.value, stated.value) <= stated.delta
    if proved.kind == "rho":
        return stated.delta > 0 and concentrated_holds(proved.value, stated.value, stated.delta)
    if stated.delta and not proved.delta:
        return pure_delta(proved, stated.value) <= stated.delta
    mine, theirs = (sorted(g.terms or (g.value,), reverse=True) for g in (proved, stated))
    mine = [proved.value] if len(theirs) < 2 else mine
    # a composition is implied term by term, the largest first
    pairs = itertools.zip_longest(mine, theirs, fillvalue=0)
    return proved.delta <= stated.delta and all(one <= other for one, other in pairs)


def pure_delta(g, epsilon):
    """An upper bound of delta(epsilon) for composed pure epsilons: each is at most a coin that
    tells the truth with odds exp(e), so sum P(coins) (1 - exp(epsilon - loss))+ is exact.
    """
    total, terms = Fraction(0), g.terms if 0 < len(g.terms) <= 12 else (g.value,)
    lies = [enclose("exp", -term) for term in terms]
    for signs in itertools.product((1, -1), repeat=len(terms)):
        loss, chance = sum(map(Fraction.__mul__, map(Fraction, signs), terms)), Fraction(1)
        for sign, (low, high) in zip(signs, lies):
            chance *= 1 / (1 + low) if sign > 0 else high / (1 + high)
        if loss > epsilon:
            total += chance * (1 - enclose("exp", epsilon - loss)[0])
    return total


def gaussian_delta(mu_squared, epsilon):
    """An upper bound of delta(epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 -
    epsilon/mu), which grows with mu.
    """
    mu = enclose("sqrt", mu_squared)[1]
    first, second = (normal_bounds(half - epsilon / mu) for half in (mu / 2, -mu / 2))
    return first[1] - (enclose("exp", epsilon)[0] * second[0] if second[0] else 0)


def concentrated_holds(rho, epsilon, delta):
    """Whether some order x > 1 shows rho x + ln(1/(x delta))/(x - 1) + ln(1 - 1/x) <= epsilon.

    Least where rho (x - 1)^2 = ln(1/(x delta)); floats find x, bounds of the logarithms decide.
    """
    x = 2.0
    for _ in range(100):
        x = 1 + math.sqrt(max(0, -math.log(x * float(delta)) / float(rho)))
    x = max(Fraction(x), 1 + Fraction(1, 10**9))
    logarithm = enclose("ln", 1 / (x * delta))[1] / (x - 1) + enclose("ln", 1 - 1 / x)[1]
    return rho * x + logarithm <= epsilon


# --- 8 listing: all datasets and pairs of a small space ------------------------------------------


def relevant_records(public, measured, limit=400):
    """All possible records over the features that margins or queries see."""
    vectors = [d for d, _ in public.margins + public.zeros] + [q.depths for q, _ in measured]
    outcomes = {query.outcome[0] for query, _ in measured if query.outcome}
    leaves = []
    for number, feature in enumerate(public.features):
        deepest = max((vector[number] for vector in vectors if number < len(vector)), default=0)
        # below the deepest depth that anything sees, one leaf stands for all
        different = list({leaf[:deepest]: leaf for leaf in feature.leaves}.values())
        leaves.append(feature.corners(deepest) if number in outcomes else different)
    if any(public.features[f].is_partial for f in outcomes) or math.prod(map(len, leaves)) > limit:
        raise TooMany
    return [record for record in itertools.product(*leaves) if is_possible(public, record)]


def list_tables(public, records, limit, deadline):
    """All multisets of n records with the exact margins, as counts of the records."""
    totals = list(enumerate(public.totals))
    keys = [[(m, cell_at(record, depths)) for m, (depths, _) in totals] for record in records]
    last = {key: number for number, row in enumerate(keys) for key in row}

    def fill(number, left):
        if time.monotonic() > deadline:
            raise TooMany
        if number == len(records):
            yield ()
            return
        row = keys[number]
        least = max((left[key] for key in row if last[key] == number), default=0)
        for count in range(least, min(left[key] for key in row) + 1):
            rest = fill(number + 1, left | {key: left[key] - count for key in row})
            yield from ((count, *counts) for counts in rest)

    left = {(m, cell): count for m, (_, cells) in totals for cell, count in cells.items()}
    tables = list(itertools.islice(fill(0, left), limit + 1)) if set(last) == set(left) else []
    if len(tables) > limit:
        raise TooMany
    return tables


def count_changes(table, other):
    """In how many records two datasets differ."""
    return sum(map(abs, map(int.__sub__, table, other))) // 2


def list_reach(tables):
    """a(t) from the definition: over all datasets, records x and values y that some dataset has,
    the most of the fewest records that must change so that x becomes y (worst case).
    """
    worst, possible = 0, [i for i, column in enumerate(zip(*tables)) if any(column)]
    for table in tables:
        away = [(count_changes(table, other), other) for other in tables]
        for x, y in itertools.permutations(possible, 2):
            # the person goes from x to y: one more change each if the tables need it not
            ends = ((k, table[x] <= o[x], table[y] >= o[y]) for k, o in away if o[y])
            worst = max(worst, min(map(sum, ends)) if table[x] else 0)
    return worst


def list_rows(records, table):
    """The records of a table, each as often as it is counted."""
    return tuple(r for r, count in zip(records, table) for _ in range(count))


def list_pairs(public, promise, records, tables, deadline):
    """All pairs of datasets of the promise, as tables."""
    blocks = [depths for depths, _ in list_blocks(public)]
    exchange = functools.partial(list_exchanges, records, blocks)
    for table in tables:
        reached = (other for other in tables if count_changes(table, other) <= promise.a)
        if promise.kind == "exchange":
            times = min(promise.most, public.n)
            results = reach_by_exchanges(exchange, list_rows(records, table), (), times)
            reached = (tuple(map(counts.__getitem__, records)) for counts in map(Counter, results))
        for other in reached:
            if time.monotonic() > deadline:
                raise TooMany
            yield table, other


def reach_by_exchanges(exchange, free, settled, times):
    """All datasets that some exchanges of a person's records make of one: each sets one more
    record, and what is set carries nothing.
    """
    yield free + settled
    for unset, y in exchange(free) if times else ():
        yield from reach_by_exchanges(exchange, unset, (*settled, y), times - 1)


def list_exchanges(records, blocks, free):
    """All results of one exchange from the definition (see `exchange_moves`): the other records,
    and what the person has become.
    """
    for x, y in itertools.product(set(free), records):
        unset, choices = list(free), []
        unset.remove(x)
        changed = [block for block in blocks if cell_at(x, block) != cell_at(y, block)]
        for block in changed:
            cell = cell_at(y, block)
            choices.append([i for i, other in enumerate(unset) if cell_at(other, block) == cell])
        for carriers in itertools.product(*choices):
            after = [list(record) for record in unset]
            for i, block in zip(carriers, changed):
                for f in {f for f, d in enumerate(block) if x[f][:d] != y[f][:d]}:
                    after[i][f] = x[f]
            yield tuple(map(tuple, after)), y


# --- 9 hunting: a pair of the promise, and the law of what is published --------------------------


# Two datasets with all exact totals: `others`, and `before` in one, `after` in the other.
Pair = namedtuple("Pair", "before after others")


def pair_from_tables(records, first, second):
    """The pair of two listed datasets."""
    old, new = Counter(dict(zip(records, first))), Counter(dict(zip(records, second)))
    lost, gained = (old - new).elements(), (new - old).elements()
    return Pair(tuple(lost), tuple(gained), tuple((old & new).items()))


def list_changes(public, query, before, after):
    """What changes in the entries of a query: (change in whole units, units in 1)."""
    totals = Counter()
    for sign, records in ((-1, before), (1, after)):
        for entry, amount in itertools.chain(*(list_entries(public, query, r) for r in records)):
            totals[entry] += sign * amount
    return [(change, units) for (_, units), change in totals.items() if change]


def list_entries(public, query, record):
    """What one record adds to a query: ((entry, units in 1), amount in whole units)."""
    cell, vector = cell_at(record, query.depths), (1,)
    if query.outcome:
        number, name = query.outcome
        vector = public.features[number].values[name][record[number]]
    if query.kind == "residual":
        return list_residual_entries(public, cell)
    if not all(record[f][depth - 1] == label for f, depth, label in query.rows):
        return []
    return [(((query.kind != "cell" and cell, i), 1), amount) for i, amount in enumerate(vector)]


def list_residual_entries(public, cell):
    """The same for a residual: along every feature 1 - 1/c at the node, -1/c at its siblings. Too
    many entries are left out, which refutes less.
    """
    families = [(node, f.children[node[:-1]]) for f, node in zip(public.features, cell) if node]
    shares = [[(each, len(c) * (each == node) - 1) for each in c] for node, c in families]
    units = math.prod(map(len, shares))
    for each in itertools.product(*shares) if units < 20_000 else ():
        yield (tuple(node for node, _ in each), units), math.prod(share for _, share in each)


def list_shifts(spaces, measured, before, after, space=0):
    """How far a pair moves every published entry that it moves: (shift, size of the noise in the
    same units, law).
    """
    shifts = []
    for query, noise in [each for each in measured if each[0].space == space]:
        unit, power = 2**noise.bits, 1 if noise.law == "Laplace noise" else 2
        for change, units in list_changes(spaces[space], query, before, after):
            shifts.append((change * unit, noise.size * (unit * units) ** power, noise.law))
    return shifts


def find_cost(shifts):
    """What a pair costs: the sum of shift^2 / sigma^2, or of |shift| / scale."""
    sums = Counter()
    for shift, size, law in shifts:
        sums[size] += abs(shift) if law == "Laplace noise" else shift * shift
    return sum(total / size for size, total in sums.items())


def complete(public, before):
    """The records that do not change where others do: for disjoint blocks without structural zeros
    they exist if and only if no published value is used more often than its count.
    """
    unchanged, margins = [], maximal_margins(public) or public.totals[-1:]
    columns = [(Counter(counts) - count_cells(before, d)).elements() for d, counts in margins]
    for cells, count in Counter(zip(*columns)).items():
        nodes = zip(public.features, map(max, zip(*cells)))  # all but one are empty
        leaves = (next(leaf for leaf in f.leaves if leaf[: len(node)] == node) for f, node in nodes)
        unchanged.append((tuple(leaves), count))
    return tuple(unchanged)


def list_hunts(spaces, promise, a):
    """Where to look for a pair: the number of a space, its moves, how often one is repeated."""
    drawer, hunts, units = random.Random(0), [], spaces[-1]
    if promise.protect == "unit" and not any(is_inherited(spaces[0], promise)):
        # units change in their own features, and not in derived ones
        k, places = promise.units[0], [find_place(units, name) for name in promise.derived]
        same = [(f, i, k + i, d, True) for (f, d), i in itertools.product(places, range(k))]
        moves = draw_moves([units], Promise("ball", k, True), k, drawer)
        hunts.append((1, [Move(move.slots, move.conditions + same) for move in moves], 1))
    has_units = all(min(counts.values()) >= a for _, counts in units.margins if promise.protect)
    if has_units and are_disjoint(list_blocks(spaces[0])) and not spaces[0].zeros:
        times = promise.most if promise.kind == "exchange" and not promise.protect else 1
        hunts.append((0, draw_moves(spaces, promise, a, drawer), times))
    return hunts


def draw_moves(spaces, promise, a, drawer):
    """Moves of the promise over all features, to be put on leaves."""
    public, inherited = spaces[0], is_inherited(spaces[0], promise)
    seen, blocks = range(len(public.features)), [depths for depths, _ in maximal_margins(public)]
    is_linked = len(spaces) > 1
    if promise.kind == "exchange":
        makers = "another" if is_linked else "nobody"
        return list(itertools.islice(exchange_moves(blocks, seen, inherited, makers), 1000))
    if is_linked:  # members change places: every unit keeps its size
        blocks.append(tuple(len(f.names) * place for f, place in zip(public.features, inherited)))
    drawn = [drawer.sample(range(a), a) for _ in range(200 + len(blocks))]
    return [ball_move(blocks, seen, drawn[k : k + len(blocks) + 1]) for k in range(200)]


class Climber:
    """Local search for the most expensive pair: put the letters of a move on real leaves, and
    change one at a time as long as the exact totals allow it.
    """

    def __init__(self, spaces, space, moves, times, measured):
        self.public, self.moves, self.times = spaces[space], moves, times
        self.find_shifts = lambda pair: list_shifts(spaces, measured, *pair, space)
        self.margins, self.random = maximal_margins(self.public), random.Random(0)
        deepest = map(max, zip(*(depths for depths, _ in self.public.totals)))
        self.leaves = [f.corners(depth) for f, depth in zip(self.public.features, deepest)]

    def climb(self, deadline, enough):
        """The best pair until the time is over or its value is `enough`: its value and records."""
        best = (0, None)
        for _ in range(60):
            move, leaves, current = self.random.choice(self.moves), {}, -1
            for _ in range(300):
                if best[0] >= enough or time.monotonic() > deadline:
                    return best
                trial = self._change(move, leaves)
                pair = self._find_pair(move, trial)
                value = find_cost(self.find_shifts(pair)) if pair else -1
                leaves, current = (trial, value) if value >= current else (leaves, current)
                best = max(best, (value, pair), key=lambda found: found[0])
        return best

    def _change(self, move, leaves):
        """Give some letters other leaves, then make equal what must agree."""
        named = ({(f, a), (f, b)} for f, a, b, _, _ in move.conditions)
        letters = sorted(set(itertools.chain(*(at.items() for _, at in move.slots), *named)))
        fresh, few = dict(leaves), self.random.choice((1, 1, 2, 3))
        for f, letter in self.random.choices(letters, k=few) if leaves else letters:
            drawn = self.random.choice(self.leaves[f])
            copied = leaves.get((f, self.random.choice(letters)[1]), drawn)
            fresh[f, letter] = self.random.choice((drawn, copied))
        for f, a, b, depth, is_same in move.conditions:
            if is_same and fresh[f, a][:depth] != fresh[f, b][:depth]:
                fresh[f, b] = fresh[f, a]
        return fresh

    def _find_pair(self, move, leaves):
        """Records before and after, or None where conditions or exact totals do not allow them."""
        agree = (leaves[f, a][:d] == leaves[f, b][:d] for f, a, b, d, _ in move.conditions)
        if list(agree) != [is_same for *_, is_same in move.conditions]:
            return None
        sides = {-1: (), 1: ()}
        for sign, at in move.slots:
            sides[sign] += (tuple(leaves[f, at[f]] for f in range(len(at))),)
        repeated = ((sides[-1] * k, sides[1] * k) for k in range(self.times, 0, -1))
        return next((pair for pair in repeated if self._fits(*pair)), None)

    def _fits(self, before, after):
        used = ((count_cells(before, d), count_cells(after, d), c) for d, c in self.margins)
        return len(before) <= self.public.n and all(a == b <= Counter(c) for a, b, c in used)


def is_refuted(shifts, stated):
    """Whether the exact laws of the published entries contradict a stated guarantee for a pair.

    Discrete Laplace: the loss reaches sum |shift|/scale exactly. Gaussian: rho is at least the
    Kullback-Leibler divergence, and so is mu^2/2, because processing cannot enlarge it (a norm
    refutes nothing). Discrete: it is exactly shift^2/(2 sigma^2).
    """
    losses, divergence = Fraction(0), Fraction(0)
    for shift, size, law in shifts:
        if law == "Laplace noise":
            losses += abs(shift) / size
        elif law == "discrete noise":
            divergence += Fraction(shift**2) / (2 * size)
        elif stated.kind != "epsilon":
            divergence += rounded_divergence(abs(shift), size)
    if stated.kind == "epsilon":
        return not stated.delta and losses > stated.value
    return divergence > stated.value / (2 if stated.kind == "mu" else 1)


@functools.cache
def rounded_divergence(shift, size):
    """A fraction below the divergence of round(sigma Z) from round(sigma Z) + shift: that of the
    intervals that they fall in, whose ends lie between whole numbers.
    """
    step, inverse = max(1, math.isqrt(math.floor(size)) // 4), enclose("sqrt", 1 / size)[0]
    sides, total = [], Fraction(0)
    for moved in (0, shift):
        below = [(0, 0)]
        for k in range(-28, 28):
            end = Fraction(1, 2) + k * step - moved
            low, high = normal_bounds(end * inverse)
            slack = SMALL * (1 + abs(end))  # Phi(x) - Phi(y) is at most x - y
            below.append((low - slack, high + slack))
        below.append((1, 1))
        sides.append([(b[0] - a[1], b[1] - a[0]) for a, b in itertools.pairwise(below)])
    for (p_low, p_high), (_, q_high) in zip(*sides):
        if p_low <= 0:
            total -= q_high  # p ln(p/q) >= -q/e
            continue
        logarithm = enclose("ln", p_low / q_high)[0]
        total += logarithm * (p_low if logarithm > 0 else p_high)
    return total


# --- 10 the verdict ------------------------------------------------------------------------------

CONFIRMED, LISTED, WEAKER = "confirmed", "confirmed by listing", "weaker than stated"
FALSE, UNCOVERED = "false", "not covered"
# the most severe verdict last
EXIT_CODES = {CONFIRMED: 0, LISTED: 0, WEAKER: 3, UNCOVERED: 3, FALSE: 1}


class Finding:
    """What is found about one part, or about the whole."""

    def __init__(self, name, stated, reason=""):
        self.name, self.stated, self.reason, self.proved = name, stated, reason, None
        self.verdict, self.rules, self.pair = UNCOVERED, [], None

    def find_ratio(self):
        """By how much the proved number exceeds the stated one, in mu where that is its kind."""
        stated = self.stated[0] if self.stated else Guarantee("", 0)
        if not self.proved or not stated.value or self.proved.kind != stated.kind:
            return None
        return float(self.proved.value / stated.value) ** (0.5 if stated.kind == "mu" else 1)

    def list_texts(self):
        """The rules that were used, each with its sentence and what stands behind it."""
        return [f"{rule}: {list_rules()[rule].replace(' | ', ' [')}]" for rule in self.rules]

    def settle(self, proved, rules, verdict, reason=""):
        """Take the verdict if what is proved implies everything that is stated."""
        self.proved, self.rules, self.verdict, self.reason = proved, rules, verdict, reason
        for stated in self.stated:
            if not implies(proved, stated):
                self.verdict, self.reason = WEAKER, f"{stated} does not follow by the rules"


class Checker:
    """Checks one release: proofs first, then listing, and always a hunt."""

    def __init__(self, release, seconds):
        self.release, self.promise, self.seconds = release, release.promise, seconds
        self.spaces = [drop_empty_levels(public, release.spaces) for public in release.spaces]
        self.public, self.is_linked = self.spaces[0], len(self.spaces) > 1
        self.reach = settle_reach(list(map(drop_empty_levels, release.spaces)), self.promise)
        self.find_costs = functools.cache(self._find_costs)
        self.costs = functools.cache(lambda space, *each: Costs(self.spaces[space], *each))
        places = is_inherited(self.public, self.promise)
        member = functools.partial(exchange_moves, inherited=places, makers="anybody")
        self.exchanges = [member, functools.partial(unit_moves, self.spaces[-1])]
        covered = [part.measured for part in release.parts if not part.reason]
        self.measured, self.listed = list(itertools.chain(*covered)), []

    def run(self):
        """All findings, the whole release last."""
        if self.reach.reason and self.promise.most == 1 and not self.is_linked:
            self._list(400)
        hunts = list_hunts(self.spaces, self.promise, self.reach.hunted)
        # without records, or levels, there is no pair
        self.hunts = hunts if all(f.leaves for each in self.spaces for f in each.features) else []
        findings = [self._check_part(part) for part in self.release.parts]
        return [*findings, self._check_whole(findings)]

    def _find_costs(self, query):
        """The bounds for a query: of linked files any members or units may change."""
        if not self.is_linked:
            return self.costs(0, self.promise, self.reach.a)
        a, seen = self.reach.a, zip(self.spaces[query.space].features, query.depths)
        derived = {*itertools.chain(*(f.names[:d] for f, d in seen))} & {*self.promise.derived}
        if query.space:
            a = self.reach.units[bool(derived) + bool(derived - {"size"})]
        elif derived:
            raise NotCovered("features of members that derive from their unit's members")
        is_one = self.promise.kind == "exchange" and self.promise.protect == "member"
        one = self.exchanges[query.space] if is_one and derived <= {"size"} else None
        n = self.spaces[query.space].n
        return self.costs(query.space, Promise("ball", a, True), min(a, n), one)

    def _list(self, limit):
        """List all datasets and pairs if they are few; correct a(t) by them."""
        stated, deadline, pairs = self.promise.a, time.monotonic() + self.seconds / 2, {}
        try:
            records = relevant_records(self.public, self.measured)
            tables = list_tables(self.public, records, limit, deadline)
            if self.reach.reason:
                exact = list_reach(tables)
                reason = f"a(t) = {exact} by listing; {stated} is stated" * (exact > stated)
                a = max(exact, stated)
                self.reach = Reach(a, (), a, "reach by listing", reason)
            promise = self.promise._replace(a=self.reach.a)
            for pair in list_pairs(self.public, promise, records, tables, deadline):
                pairs.setdefault(tuple(map(int.__sub__, *pair)), pair)
        except TooMany:
            return
        self.listed = [pair_from_tables(records, *pair) for pair in pairs.values()]
        self.counts = f"{len(tables)} tables, {len(pairs)} differences"

    def _check_part(self, part):
        """Prove, or list; and try to refute in any case."""
        finding, laws = Finding(part.name, part.stated), {noise.law for _, noise in part.measured}
        try:
            if part.reason:
                raise NotCovered(part.reason)
            proved, rules = prove_part(part, self.find_costs), dict.fromkeys([self.reach.rule])
            if self.promise.most > 1 and not self.is_linked:
                rules["reach, several records"] = None
            for query, _ in part.measured:
                rules |= self.find_costs(query).rules
            finding.settle(proved, [*rules, *sorted(laws)], CONFIRMED)
        except NotCovered as error:
            finding.reason = str(error)
        if finding.verdict == WEAKER and part.measured and "canonical noise" not in laws:
            self.settle_by_listing(finding, part.measured)
        if finding.verdict in (CONFIRMED, LISTED) and self.reach.reason:
            finding.verdict, finding.reason = WEAKER, self.reach.reason
        if finding.verdict != FALSE and not part.reason:
            self._refute(finding, part.measured)
        return finding

    def settle_by_listing(self, finding, measured):
        """The worst listed pair, and the guarantee that it gives."""
        if not self.listed and not self.reach.reason and not self.is_linked:
            self._list(3000)
        if not self.listed:
            return
        kind, worst = measured[0][1].kind, (-1, None, None)
        for pair in self.listed:
            shifts = list_shifts(self.spaces, measured, *pair[:2])
            worst = max(worst, (find_cost(shifts), pair, shifts), key=lambda found: found[0])
        proved = Guarantee(kind, worst[0] / (2 if kind == "rho" else 1))
        finding.settle(proved, ["listing"], LISTED, self.counts)
        self._tell_apart(finding, *worst[1:])

    def _refute(self, finding, measured):
        """Hunt for a pair that costs what is proved, or the most that time allows, and compare the
        exact law of what is published with what is stated.
        """
        laws = {noise.law for _, noise in measured}
        if finding.verdict == LISTED or laws - {"rounded noise", "discrete noise", "Laplace noise"}:
            return
        best, goals = (0, None, 0), [10**300]
        # what is proved cannot be exceeded, and half as much again as is stated refutes it
        for goal, factor in [(finding.proved, 2), *((each, 3) for each in finding.stated)]:
            if goal and goal.kind in {noise.kind for _, noise in measured}:
                goals.append(goal.value * factor / (1 if goal.kind == "rho" else 2))
        for space, moves, times in self.hunts:
            share = self.seconds / len(self.hunts) / (1 + len(self.release.parts))
            climber = Climber(self.spaces, space, moves, times, measured)
            cost, pair = climber.climb(time.monotonic() + share, float(min(goals)) * (1 - 1e-9))
            if cost > best[0]:
                unchanged = () if self.is_linked else complete(self.public, pair[0])
                best = (cost, Pair(*pair, unchanged), space)
        if best[1]:
            shifts = list_shifts(self.spaces, measured, *best[1][:2], best[2])
            self._tell_apart(finding, best[1], shifts)

    def _tell_apart(self, finding, pair, shifts):
        """Call a claim false if the law of what is published tells a pair apart better."""
        if any(is_refuted(shifts, stated) for stated in finding.stated):
            finding.verdict, finding.pair = FALSE, pair

    def _check_whole(self, findings):
        """The composition of all parts against what is stated of the release."""
        whole = Finding("the release", self.release.stated)
        missing = [f"{each.name}: {each.reason}" for each in findings if not each.proved]
        if missing:
            whole.reason = "; ".join(dict.fromkeys(missing))
            return whole
        composed = ["composition"] * (len(findings) > 1)
        rules = itertools.chain(*(finding.rules for finding in findings), composed)
        proved = compose([finding.proved for finding in findings])
        whole.settle(proved, list(dict.fromkeys(rules)), worst_verdict(findings))
        # outcomes of one column, measured in two ways, are features of their own here
        outcomes = {query.outcome for query, _ in self.measured if query.outcome}
        is_open = whole.verdict == WEAKER or len(findings) > 1
        if is_open and len(outcomes) < 2 and whole.verdict != FALSE:
            self._refute(whole, self.measured)
        return whole


def worst_verdict(findings):
    """The most severe verdict of some findings."""
    return max([CONFIRMED, *(each.verdict for each in findings)], key=list(EXIT_CODES).index)


def check_release(folder, seconds=10):
    """Check a folder. Returns the verdict, the findings (the whole last) and notes."""
    release = read_release(folder)
    findings = Checker(release, seconds).run()
    return worst_verdict(findings), findings, release.notes


def main(arguments=None):
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description="Check the privacy guarantee of a semidp release.")
    parser.add_argument("release", metavar="RELEASE", help="the folder of the release")
    parser.add_argument("--seconds", type=float, default=10, help="to list and hunt (default 10)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    try:
        verdict, findings, notes = check_release(options.release, options.seconds)
    except Unreadable as error:
        print(f"semidp_check: {error}", file=sys.stderr)
        return 2
    except NotCovered as error:
        verdict, findings, notes = UNCOVERED, [Finding("the release", [], reason=str(error))], []
    text = json.dumps(to_json(verdict, findings), indent=2, ensure_ascii=False)
    print(text if options.format == "json" else "\n".join(to_lines(verdict, findings) + notes))
    return EXIT_CODES[verdict]


def to_json(verdict, findings):
    """The verdict as plain values; `parts` says it for each result."""
    documents = []
    for finding in findings:
        document = {"name": finding.name, "verdict": finding.verdict, "ratio": finding.find_ratio()}
        document["stated"] = finding.stated[0].to_json() if finding.stated else None
        document["proved"] = finding.proved.to_json() if finding.proved else None
        documents.append(document | {"rules": finding.list_texts(), "reason": finding.reason})
    pair = next((finding.pair._asdict() for finding in findings if finding.pair), None)
    return {**documents.pop(), "verdict": verdict, "pair": pair, "parts": documents}


def to_lines(verdict, findings):
    """The verdict for people: one line, then why, then the pair."""
    whole = findings[-1]
    reason = next((f.reason for f in reversed(findings) if f.reason and f.verdict == verdict), "")
    texts = [f"stated {whole.stated[0]}"] if whole.stated else []
    texts += [f"proved {whole.proved}"] if whole.proved else []
    lines = [verdict + ": " + "; ".join([*texts, reason] if reason else texts)]
    for each in findings:
        ratio = f" (ratio {each.find_ratio():.4g})" if each.find_ratio() else ""
        lines.append(f"  {each.name}: {each.verdict}, proved {each.proved or 'nothing'}{ratio}")
        lines += [f"    {text}" for text in each.list_texts()]
    for finding in [finding for finding in findings if finding.pair][:1]:
        lines.append(f"pair: two datasets told apart better than {finding.name} states")
        lines += [f"  {to_text(old)}  ->  {to_text(new)}" for old, new in zip(*finding.pair[:2])]
        lines += [f"  {count} x {to_text(each)} in both" for each, count in finding.pair.others]
    return lines


def to_text(record):
    """A record by its finest labels."""
    return "(" + ", ".join(str(leaf[-1]) for leaf in record) + ")"


if __name__ == "__main__":
    sys.exit(main())
