"""Sentences on a promise about linked members and units: what is exact, and who changes."""

from semidp.promise.exact import count_noun
from semidp.promise.spaces.linked import LinkedDataspace, Quarters, members_text
from semidp.promise.spaces.protection import Protect


def name_exact_facts(space: LinkedDataspace) -> list[str]:
    """Name what is published exactly of both kinds, and the bounds on the size of units, a line
    each.
    """
    link = space.link
    lines = [f"counts of {margin}" for margin in space.margins]
    lines += [f"units by {margin}" for margin in space.units.margins]
    sizes = f"of {members_text(link.least, link.most)} (declared)"
    if link.quarters is not None:
        kinds = ", ".join(link.quarters.kinds)
        sizes += f"; none of them is of {link.quarters.feature} {kinds}"
    lines.append(f"the number of members, {space.n:,}")
    lines.append(f"the number of units, {space.units.n:,}, each {sizes}")
    return lines


def explain_linked_promise(space: LinkedDataspace) -> list[str]:
    """Say whom the promise is about, and why others change with that member or unit."""
    reach, link = space.reach, space.link
    members, units = count_noun(reach.members, "member"), count_noun(reach.derived_units, "unit")
    if link.protect is Protect.member:
        sentences = [
            (
                "The promise is about one member, who may be anybody and belong to any unit that"
                " exists. If that unit is full, or if the old one would be left with too few"
                " members, somebody else takes the place. If totals are exact, others hand over the"
                " published values."
            ),
            (
                f"For that, the members of at most {units} change, and at most {members} in all."
                " Units keep their own features, which this promise does not protect."
            ),
        ]
        return sentences if link.quarters is None else [*sentences, _explain(link.quarters)]
    return [
        (
            f"The promise is about one whole unit with up to {count_noun(link.most, 'member')},"
            " which may be any other one. The number of members is exact. So other units gain the"
            " members that this one loses, and lose those that it gains."
        ),
        (
            f"Two datasets are compared only if they differ in at most {members} and {units}. Of"
            f" these units, at most {reach.size_units} may differ in their own features or their"
            f" size, and at most {reach.own_units} in their own features. So many suffice for any"
            " unit to have been any other possible one. Changes of more members, or of more units"
            " in what they are counted by, may be protected less."
        ),
    ]


def _explain(quarters: Quarters) -> str:
    kinds = ", ".join(quarters.kinds)
    return (
        f"Members of {quarters.feature} {kinds} live in group quarters. All quarters of one kind in"
        " one place count as one unit, without a bound on its members. Anybody may move into it,"
        " and it is in no table of units."
    )
