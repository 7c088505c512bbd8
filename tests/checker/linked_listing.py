"""All pairs of small linked files where one member is protected, listed from the definition: what
the rules of the checker are compared with.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.checker.the_checker import check

Record = tuple[Any, ...]
Rows = tuple[Record, ...]
Fits = Callable[[Sequence[Any]], bool]
Change = tuple[Any, tuple[Rows, Rows]]
"""The members before and after with the others, and the units that are lost and gained."""


def list_linked_changes(spaces: Sequence[Any], promise: Any, deadline: float) -> list[Change]:
    """Every difference of two linked files. Units keep their own features, and the last feature of
    a member is its unit.
    """
    assert promise.protect == "member"
    assert promise.derived == ("size",)
    (members, units), found, inherited = spaces, {}, check.is_inherited(spaces[0], promise)
    depths = [len(f.names) for f in members.features]  # a record has its unit after these

    def find_sizes(rows: Sequence[Any]) -> list[int]:
        sizes = Counter(row[-1] for row in rows)
        return [sizes[(f"unit {number}",)] for number in range(units.n)]

    def fits(rows: Sequence[Any]) -> bool:
        return all(promise.least <= size <= promise.most for size in find_sizes(rows))

    def count_units(homes: Sequence[Any], rows: Sequence[Any]) -> Counter[Record]:
        sized = zip(homes, find_sizes(rows), strict=True)
        return Counter(tuple(leaf or (str(size),) for leaf in home) for home, size in sized)

    leaves = [[()] if f.names == promise.derived else f.leaves for f in units.features]
    for homes in itertools.combinations_with_replacement(itertools.product(*leaves), units.n):
        if any(check.count_cells(homes, seen) != cells for seen, cells in units.totals):
            continue
        records: list[Record] = []
        for number, home in enumerate(homes):
            at = {f.names: [leaf] for f, leaf in zip(units.features, home, strict=True)}
            own = zip(members.features, inherited, strict=True)
            at |= {f.names: f.leaves for f, place in own if not place}
            rows = itertools.product(*(at.get(f.names, ()) for f in members.features))
            possible = (row for row in rows if check.is_possible(members, row))
            records += [(*row, (f"unit {number}",)) for row in possible]
        tables = check.list_tables(members, records, 3000, deadline)
        tables = [table for table in tables if fits(check.list_rows(records, table))]
        for pair in list_pairs(members, promise, records, tables, inherited, fits):
            if time.monotonic() > deadline:
                raise check.TooMany
            old, new = (count_units(homes, check.list_rows(records, table)) for table in pair)
            units_changed = tuple((old - new).elements()), tuple((new - old).elements())
            change = (check.pair_from_tables(records, *pair), units_changed)
            seen = [frozenset(check.count_cells(rows, depths).items()) for rows in change[0][:2]]
            found.setdefault((*seen, *map(frozenset, units_changed)), change)
    return list(found.values())


def list_pairs(
    members: Any,
    promise: Any,
    records: Sequence[Record],
    tables: Sequence[tuple[int, ...]],
    inherited: Sequence[bool],
    fits: Fits,
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of members that the promise compares, as counts of records."""
    blocks = [depths for depths, _ in check.list_blocks(members)]
    for table in tables:
        if promise.kind == "exchange":
            rows = check.list_rows(records, table)
            for result in list_exchanges(records, blocks, inherited, fits, rows):
                counts = Counter(result)
                yield table, tuple(counts[record] for record in records)
        else:
            for other in tables:
                if check.count_changes(table, other) <= promise.a:
                    yield table, other


def list_exchanges(
    records: Sequence[Record],
    blocks: Sequence[Any],
    inherited: Sequence[bool],
    fits: Fits,
    free: Rows,
) -> Iterator[Rows]:
    """All files that one exchange of a member makes of one, from the definition. The last feature
    of a record is its unit.

    The carrier of inherited features takes the person's unit. If a unit has too few or too many
    members then, and that carrier does not hand over inherited features alone, a member of the
    person's new unit goes where one is missing.
    """
    of_unit = [f for f, is_place in enumerate(inherited) if is_place] + [len(inherited)]
    for x, y in itertools.product(set(free), records):
        unset, choices, is_alone = list(free), [], False
        unset.remove(x)
        changed = [block for block in blocks if check.cell_at(x, block) != check.cell_at(y, block)]
        for block in changed:
            cell = check.cell_at(y, block)
            alike = (check.cell_at(other, block) == cell for other in unset)
            choices.append([i for i, is_alike in enumerate(alike) if is_alike])
        for carriers in itertools.product(*choices):
            after, short = [list(record) for record in unset], x
            for i, block in zip(carriers, changed, strict=True):
                taken = {f for f, d in enumerate(block) if x[f][:d] != y[f][:d]}
                if not taken.isdisjoint(of_unit):
                    taken, short = taken.union(of_unit), unset[i]
                    is_alone = all(inherited[f] for f, d in enumerate(block) if d)
                for f in taken:
                    after[i][f] = x[f]
            if fits([*after, y]):
                yield (*map(tuple, after), y)
                continue
            for i, other in enumerate(unset):
                if not is_alone and after[i][-1] == other[-1] == y[-1] != short[-1]:
                    made = [short[f] if f in of_unit else leaf for f, leaf in enumerate(after[i])]
                    result = [*after[:i], made, *after[i + 1 :]]
                    if fits([*result, y]):
                        yield (*map(tuple, result), y)
