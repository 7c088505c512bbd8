"""Kinds of results that the 150 lines of `reader` leave out, from the chapters of spec/ as well."""

import itertools
import math
from collections import Counter, defaultdict
from fractions import Fraction

from tests.spec.reader import (
    NotCovered,
    Space,
    apply_law,
    cell_of,
    prove_counts,
    read,
    read_promise,
    require,
)


class LinkedSpace(Space):
    """Members, who have the features of their unit (3.3, 3.6)."""

    inherited = frozenset()

    def list_exchanges(self, x, y, records):
        def differ(margin):
            return {f for f, d in enumerate(margin) if x[f][:d] != y[f][:d]}

        changed = [m for m in self.blocks if differ(m)]
        placed = next((m for m in changed if differ(m) & self.inherited), None)
        fits = [[r for r in records if cell_of(r, m) == cell_of(y, m)] for m in changed]
        is_alone = placed and self.inherited >= {f for f, d in enumerate(placed) if d}
        living = [r for r in records if all(r[f] == y[f] for f in self.inherited)]
        for room in ([],) if is_alone else ([], [living]):
            ways = itertools.product(*fits, *room)
            shares = list(itertools.product(range(len(fits + room)), repeat=len(fits + room)))
            for carriers, shared in itertools.product(ways, shares):
                people, gets = list(zip(carriers, shared, strict=True)), defaultdict(dict)
                for margin, who in zip(changed, people, strict=False):
                    gets[who] |= {f: x[f] for f in differ(margin) - self.inherited}
                mover = people[changed.index(placed)] if placed else None
                if placed:
                    gets[mover] |= {f: x[f] for f in self.inherited}
                if room and people[-1] == mover:
                    continue  # nobody moves twice
                if room:
                    gets[people[-1]] |= {f: (mover[0] if placed else x)[f] for f in self.inherited}
                move = Counter([y])
                move.subtract([x, *(carrier for carrier, _ in gets)])
                for (carrier, _), new in gets.items():
                    move[tuple(new.get(f, own) for f, own in enumerate(carrier))] += 1
                yield {record: count for record, count in move.items() if count}


def add_costs(space, entry, find_reach):
    """The sum of the costs of residuals, each with the number of records that change (6.5)."""
    cost = 0
    for part in entry["residuals"]:
        d = space.find_depths(part["features"])
        a = find_reach(part["features"])
        promise = ("ball", 1, a) if len(space.blocks) < 2 else ("ball", a, 1)
        seen = {d: 1 / Fraction(part["sigma2"])}
        cost += space.find_norms(promise, seen, lambda r, d=d: dict(space.add_residual(d, r)))[1]
    return cost


def prove_linked(document, entry):
    """Tables of members and units (3.4 to 3.8)."""
    facts, kind = document["dataspace"], document["a"]["kind"]
    members, units, link = LinkedSpace(facts), Space(facts["units"]), facts["link"]
    q_m, q_u, most = len(members.blocks), len(units.blocks), link["most"]
    derived = set(link["derived"])
    if link["protect"] == "member":
        places = [f for f, own in enumerate(members.names) if own[0] and own in units.names]
        members.inherited = frozenset(places)
        own = [any(d and f not in places for f, d in enumerate(m)) for m in members.blocks]
        many = min(2 + sum(own), facts["n"])
        reach = [0, *[2 * many if kind == "ball" else 2 + q_m] * 2]
        units.blocks = [tuple(0 if n[0] in derived or not n[0] else len(n) for n in units.names)]
    else:
        require(kind == "ball", "exchanges of units")
        many = min(most * (1 + q_m + q_u), facts["n"])
        reach = [1 + q_u, 1 + q_u + most - link["least"], 1 + q_u + most * (1 + q_m)]

    def find_reach(names):
        seen = derived & set(names)
        return min(reach[0 if not seen else 1 if seen == {"size"} else 2], facts["units"]["n"])

    require(document["a"]["used"] >= many, "an a below the rules")
    for space, part in ((members, entry["members"]), (units, entry["units"])):
        for table in part["tables"]:
            depths = [range(depth + 1) for depth in space.find_depths(table["features"])]
            measured = {space.find_depths(each["features"]) for each in part["residuals"]}
            for d in itertools.product(*depths):
                require(space.is_fixed(d) or d in measured, "a residual that is not measured")
    costs = [add_costs(units, entry["units"], find_reach)]
    if kind == "ball":
        costs.append(add_costs(members, entry["members"], lambda _: many))
    else:
        form, cost = prove_counts(members, (kind, many, 1), None, entry["members"])
        costs.append(cost if form == "mu_squared" else 2 * cost)
    proved = max(sum(costs), sum(Fraction(entry[key]["precision"]) for key in ("members", "units")))
    is_rounded = {entry[key]["law"] for key in ("members", "units")} == {"rounded"}
    return ("mu_squared", proved) if is_rounded else ("rho", proved / 2)


def list_path(value, size):
    """The nodes above a value in the tree of so many values (5.6)."""
    low, nodes = 0, []
    while size > 1:
        nodes.append((low, size))
        left = (size + 1) // 2
        low, size = (low, left) if value < low + left else (low + left, size - left)
    return nodes


def find_farthest(values, split, whole):
    """Three values of an exchange that move sets with several groups, and with one, the most."""
    paths = [list_path(value, values) for value in range(values)]

    def part(one, two):
        common = len({*paths[one]} & {*paths[two]})
        return 4 + len(paths[one]) + len(paths[two]) - 2 * common if one != two else 0

    apart = [[part(v, w) for w in range(values)] for v in range(values)]
    best = 0
    for v, after in itertools.combinations_with_replacement(range(values), 2):
        by_carrier = max(map(int.__add__, apart[v], apart[after]))
        best = max(best, split * by_carrier + whole * apart[v][after])
    return best


def prove_distribution(space, promise, asked, noise):
    """Counts of halves in a tree of values (5.6)."""
    kind, a, times = promise
    (low, high), steps = map(Fraction, asked["bounds"]), asked["grid"]
    edges = {low + (high - low) * Fraction(2 * k + 1, 2 * steps) for k in range(steps)}
    values = len(edges.union(map(Fraction, asked.get("lines", ())))) + 1
    sets = [space.find_depths(names) for names in asked.get("by") or [[]]]
    require(all(map(space.is_fixed, sets)) and noise["law"] != "laplace", "such groups")
    split = sum(len(space.list_cells(d)) > 1 for d in sets)
    if kind == "ball":
        square = a**2 * len(sets) * find_farthest(values, 0, 1)
    else:
        square = find_farthest(values, split, len(sets) - split)
    return apply_law(noise, None, square * times**2)


def prove_answers(space, promise, asked, noise):
    """Numbers and sums of those who answered (5.5)."""
    kind, a, times = promise
    sets = [space.find_depths(names) for names in asked.get("by") or [[]]]
    require(all(map(space.is_fixed, sets)), "such groups")
    weight, fine = int(noise["weight"]), int(noise["fineness"]) * asked.get("grid", 1)
    swapped = sum(len(space.list_cells(d)) > 1 for d in sets)
    many, each = (a * len(sets), a) if kind == "ball" else (len(sets) + swapped, 1)
    length = max(2 * fine, weight + fine) * many
    square = max(4 * fine**2, weight**2 + fine**2) * many * each
    return apply_law(noise, length * times, square * times**2)


def prove_moments(space, promise, query, noise):
    """The sum of z times steps (5.7)."""
    columns = []
    for column in query["columns"]:
        d = space.find_depths(column["features"])
        values = zip(space.list_cells(d), map(Fraction, column["values"]), strict=True)
        columns.append((d, dict(values)))
    scale = math.lcm(*(v.denominator for _, values in columns for v in values.values()))
    whole = [[scale * (i == k) for k in range(len(columns))] for i in range(len(columns))]
    rows = set()
    for record in space.list_cells(*(d for d, _ in columns)):
        row = [values[cell_of(record, d)] for d, values in columns]
        combined = query.get("combination", whole)
        rows.add(tuple(sum(int(w) * v for w, v in zip(own, row, strict=True)) for own in combined))
    kind, a, times = promise
    if kind == "exchange":
        pairs = itertools.product(rows, repeat=2)
        rows |= {tuple(v - w for v, w in zip(*pair, strict=True)) for pair in pairs}
    length, square = (max(sum(abs(v) ** k for v in row) for row in rows) for k in (1, 2))
    each, steps = (a if kind == "ball" else 1) * times, query["grid"]
    return apply_law(noise, each * steps * length, (each * steps) ** 2 * square)


def prove_odds_ratio(space, promise, asked, noise):
    """The count x11 with canonical noise (5.8, 7.8)."""
    require("mu_squared" in noise, "canonical noise for (epsilon, delta)")
    d = space.find_depths([asked["rows"], asked["columns"], *asked.get("strata", ())])
    length, _ = space.find_norms(promise, {d: 1}, lambda r: {(d, cell_of(r, d)): 1})
    group = math.ceil(length // 4 / Fraction(noise["moves"]))
    return "mu_squared", group**2 * Fraction(noise["mu_squared"])


def prove_finer_sum(document, promise, asked, noise):
    """Sums of an outcome below an exact feature, whose values its levels do not restrict (5.9)."""
    facts = {**document["dataspace"], "schema": {**document["dataspace"]["schema"]}}
    entries = facts["schema"]["feature"]
    (f,) = (f for f, entry in enumerate(entries) if asked["column"] in entry.get("finer", {}))
    require(not entries[f]["finer"][asked["column"]], "values that levels restrict")
    plain = [{k: v for k, v in entry.items() if k != "finer"} for entry in entries]
    space = Space({**facts, "schema": {**facts["schema"], "feature": plain}})
    space.leaves[f] = [(*path, end) for path in space.leaves[f] for end in (0, asked["grid"])]
    sets = [space.find_depths(names) for names in asked.get("by") or [[]]]
    require(all(map(space.is_fixed, sets)), "such groups")
    table = list(map(max, *sets, sets[0]))
    table[f] = len(space.leaves[f][0])
    seen = {tuple(table): 1}

    def add(record):
        return {(tuple(table), k, cell_of(record, d)): record[f][-1] for k, d in enumerate(sets)}

    return apply_law(noise, *space.find_norms(promise, seen, add))


def read_circle(space, document):
    """The ball where all pairs of three features are exact, one of two levels (2.7)."""
    pairs = {frozenset(f for f, d in enumerate(m) if d) for m in space.blocks}
    flat = [f for f, own in enumerate(space.names) if own[0]]
    sizes = sorted(len(space.leaves[f]) for f in flat)
    is_circle = pairs == set(map(frozenset, itertools.combinations(flat, 2))) and len(flat) == 3
    require(is_circle and sizes[0] == 2 and document["a"]["kind"] == "ball", "overlapping margins")
    require(document["a"]["used"] >= 1 + 2 * sizes[1], "an a below the rules")
    return "ball", document["a"]["used"], 1


def prove_further_release(folder):
    """As `reader.prove_release`, for a release with one result of another kind."""
    document = read(folder)
    stated, plan, facts = document["guarantee"], document["plan"], document["dataspace"]
    lists = [each for each in document.values() if isinstance(each, list)]
    (entry,) = (e for e in itertools.chain(*lists) if isinstance(e, dict) and "noise" in e)
    noise, name = entry["noise"], entry["name"]
    if "members" in entry:
        form, proved = prove_linked(document, entry)
    else:
        requests = [x for several in plan.values() if isinstance(several, list) for x in several]
        named = [x for x in requests if isinstance(x, dict) and x.get("name") == name]
        asked = named[0] if named else {}
        has_finer = any("finer" in each for each in facts["schema"]["feature"])
        if has_finer:
            most = document["a"].get("protection", {}).get("most", 1)
            promise = document["a"]["kind"], document["a"]["used"], most
            require(promise[0] == "exchange", "balls")
            form, proved = prove_finer_sum(document, promise, asked, noise)
        else:
            space = Space(facts)
            try:
                promise = read_promise(space, document)
            except NotCovered:
                promise = read_circle(space, document)
            if document.get("distributions"):
                form, proved = prove_distribution(space, promise, asked, noise)
            elif document.get("answers"):
                form, proved = prove_answers(space, promise, asked, noise)
            elif document.get("odds_ratios"):
                form, proved = prove_odds_ratio(space, promise, asked, noise)
            elif "query" in entry:
                form, proved = prove_moments(space, promise, entry["query"], noise)
            else:
                form, proved = prove_counts(space, promise, None, entry)
    kind = {"gaussian": "mu_squared", "zcdp": "rho"}[stated["kind"]]
    require(form == kind, "a composed curve")
    return kind, Fraction(stated[kind]), proved
