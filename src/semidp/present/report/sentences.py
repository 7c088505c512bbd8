"""What a release says about itself as a whole, in plain words, and about the promise for linked
members and units.

What a statistic says is in its own folder. The page and the terminal share every sentence.
"""

import re
from collections.abc import Sequence
from fractions import Fraction

from semidp.promise.exact import count_noun, format_rounded_up, plain
from semidp.promise.guarantee import Guarantee, Scope, attacker_sentence
from semidp.promise.spaces.dataspace import Datasets, Dataspace, list_column_margins
from semidp.promise.spaces.linked import LinkedDataspace, Quarters, members_text
from semidp.promise.spaces.protection import Protect, Protection
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.publish.pipeline import Prepared
from semidp.publish.plan import Plan
from semidp.publish.presentation import WORKBOOK, report_words
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.release_value import SOURCES
from semidp.publish.results.columns import METADATA
from semidp.publish.results.place_maps import MAP
from semidp.publish.results.texts import name_tradeoff
from semidp.publish.sdmx import STRUCTURE
from semidp.publish.side_information import change
from semidp.publish.statistics.parts import Partition
from semidp.publish.statistics.protocol.requests import Published

# of attempts that the best attacker misses: less is hardly any protection (mu 4.9, epsilon 7.6)
_LEAST_MISSED = 0.0005


def exact_part(dataspace: Datasets, scope: Scope | None = None) -> list[str]:
    """Name what is published exactly; a scope also knows about persons with several records.

    >>> exact_part(Dataspace.from_description("state totals"))
    ['state totals']
    """
    if not isinstance(dataspace, Dataspace):
        return [dataspace.summary()]
    if isinstance(dataspace, LinkedDataspace):
        return name_exact_facts(dataspace)
    margins = [f"counts of {margin}" for margin in list_column_margins(dataspace)]
    if scope is None or scope.protection is None:
        return [*margins, f"the number of records, {dataspace.n:,}"]
    return [
        *margins,
        f"the number of {scope.protection.records}, {dataspace.n:,}",
        *persons_part(scope),
    ]


def counted_text(scope: Scope) -> str:
    """Say how many records there are, and of how many persons where each may have several."""
    protection = scope.protection
    if protection is None:
        return count_noun(scope.dataspace.n, "record")
    whose = ""
    if scope.persons is not None:
        whose = f" of {count_noun(scope.persons, protection.noun, protection.units)}"
    records = count_noun(scope.dataspace.n, protection.record, protection.records)
    return f"{records}{whose}; {protection.who} is protected"


def persons_part(scope: Scope) -> list[str]:
    """Name what is public about persons with several records: how many there are, and how many
    records they have.
    """
    protection = scope.protection
    if protection is None:
        return []
    limit = (
        f"the most {protection.records} of one {protection.noun}, {protection.most:,} (declared)"
    )
    counted = (
        [] if scope.persons is None else [f"the number of {protection.units}, {scope.persons:,}"]
    )
    return [*counted, limit]


def name_results(release: ReleaseFiles) -> str:
    """Name everything that is published, for a heading."""
    titles = [result.title() for result in release.results]
    text = ", ".join(title for title in titles if title)
    return text[:1].upper() + text[1:]


def noisy_part(release: ReleaseFiles) -> list[str]:
    """Name what is published with noise."""
    return [line for result in release.results for line in result.noisy_lines()]


def strength(guarantee: Guarantee, report_delta: Fraction) -> list[str]:
    """Say how strong a guarantee is: what the best attacker achieves, then the numbers for
    specialists.

    >>> from semidp.promise.spaces.adjacency import Ball, Exchange
    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> for adjacency in (Ball(2), Exchange(2)):
    ...     print(
    ...         *strength(
    ...             Guarantee(Dataspace.from_description("states"), adjacency, gaussian(1)),
    ...             Fraction(1, 10**9),
    ...         )
    ...     )
    Suppose an attacker ... at most 26 of 100; guessing succeeds in 5. μ = 1 (Gaussian DP), which is
    (6.17394, 1e-9)-DP
    Suppose an attacker ... at most 26 of 100; ... μ = 1 (Gaussian DP), which is
    (6.17394, 1e-9)-DP, for exchanges of one person
    """
    if guarantee.tradeoff.is_trivial:
        return ["The release says nothing beyond the exact totals."]
    adjacency = guarantee.adjacency
    pairs = "" if adjacency.protects_groups else f", for {adjacency.words.pairs}"
    return [
        attacker_sentence(guarantee.tradeoff, adjacency.protection),
        f"{_numbers(guarantee.tradeoff, report_delta)}{pairs}",
    ]


def strength_rows(sentences: Sequence[str]) -> list[tuple[str, str]]:
    """The sentences of `strength` for a terminal: words first, then numbers for specialists.

    >>> strength_rows(["An attacker ...", "0.5-zCDP"])[1]
    ('strength', 'for specialists (smaller is safer): 0.5-zCDP')
    """
    in_words, *in_numbers = sentences
    rows = [("strength", in_words)]
    rows += [("strength", f"for specialists (smaller is safer): {text}") for text in in_numbers]
    return rows


def release_strength(release: ReleaseFiles) -> list[str]:
    """Say how strong the guarantee of a release is, or that none is stated."""
    if release.stated is None:
        return ["No guarantee of all releases together is stated: the warnings say why."]
    return strength(release.guarantee, release.plan.report_delta)


def explain_protection(release: ReleaseFiles) -> list[str]:
    """Say what a release protects and from whom; of one that states no guarantee, where to look."""
    if release.stated is None:
        return [
            "Each of the releases states a guarantee of its own, for what it publishes exactly."
            " They do not add up."
        ]
    explanation = release.guarantee.explain()
    return [explanation.protected, explanation.attacker]


def weakness(guarantee: Guarantee | None) -> tuple[str, ...]:
    """Warn of a guarantee too weak to matter: the best attacker is nearly certain.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> known = Dataspace.from_description("states")
    >>> [len(weakness(Guarantee(known, Ball(1), gaussian(mu)))) for mu in (1, 4, 1_000_000)]
    [0, 0, 1]
    """
    if guarantee is None:
        return ()
    # by an attacker who accepts 5% false alarms, as in `attacker_sentence`
    missed = float(guarantee.tradeoff(0.95))
    if missed > _LEAST_MISSED:
        return ()
    return (
        (
            "This budget is so large that almost nobody is protected: an attacker who tries to"
            " tell two datasets apart almost always succeeds."
        ),
    )


def _numbers(tradeoff: Tradeoff, report_delta: Fraction) -> str:
    name = name_tradeoff(tradeoff)
    restated = f"({format_rounded_up(tradeoff.epsilon(report_delta))}, {plain(report_delta)})-DP"
    return f"{name}, which is {restated}" if name else restated


def together_text(scope: Scope) -> str:
    """Say in a few words how many records change together in the guarantee."""
    return report_words(scope.adjacency).describe_joint_change(exact=_has_exact_totals(scope))


def why_heading(scope: Scope) -> str:
    """Return the heading of the part on records that move together."""
    semi = scope.semi_adjacency
    if semi is not None and semi.bound == 0:
        return "Why nothing is left to protect"
    return report_words(scope.adjacency).heading(exact=_has_exact_totals(scope))


def _has_exact_totals(scope: Scope) -> bool:
    """Whether totals of any kind of record are exact, beside their number."""
    public = scope.dataspace
    return any(list_column_margins(public.for_kind(kind)) for kind in public.kinds)


def explain_joint_moves(scope: Scope) -> list[str]:
    """Say why records must move together, and how many."""
    a, semi = scope.adjacency.a, scope.semi_adjacency
    if isinstance(scope.dataspace, LinkedDataspace):
        return explain_linked_promise(scope.dataspace)
    protection = scope.protection
    if not list_column_margins(scope.dataspace) and protection is not None:
        kept = f"the numbers of {protection.records} and of {protection.units}"
        return [f"Only {kept} are published exactly, so {protection.who} can be different alone."]
    if not list_column_margins(scope.dataspace):
        return ["Only the number of records is published exactly, so one record can change alone."]
    first = (
        "Suppose that one person's record alone had been different, in a feature with exact totals."
        " Then the published totals would be different, too. So for that person to have been"
        " somebody else, other records must have been different as well."
    )
    if protection is not None:
        first = (
            f"Suppose that the {protection.records} of one {protection.noun} alone had been"
            " different, in a feature with exact totals. Then the published totals would be"
            f" different, too. So if that {protection.noun} had had other"
            f" {protection.records}, {protection.records} of other {protection.units} must have"
            " been different as well."
        )
    if semi is None:
        return [
            first,
            (
                f"How many is not known for these totals; a = {a} was given by whoever made the"
                " release."
            ),
        ]
    if semi.bound == 0:
        return ["The published totals leave no other dataset: there is nothing left to protect."]
    number = count_noun(semi.bound, scope.adjacency.words.one, scope.adjacency.words.noun)
    most = f"a(t) = {number}" if semi.worst_case is not None else f"at most {number}"
    return [first, *report_words(scope.adjacency).why(most)]


def explain_other_adjacency(release: ReleaseFiles | Prepared) -> list[str]:
    """Say what the same noise guarantees under the other adjacency, where that is known."""
    other = release.other_adjacency_guarantee
    if other is None or other.tradeoff.is_trivial:
        return []
    numbers = _numbers(other.tradeoff, release.plan.report_delta)
    return [f"{report_words(other.adjacency).same_noise}: {numbers}"]


def also_known(release: ReleaseFiles) -> tuple[list[tuple[str, str, str, str]], int]:
    """Say what the noise guarantees if an attacker also knew a one-way margin, one row each, and
    how many are left.

    >>> import semidp
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "ill"], semidp.Budget.zcdp("1/2"))],
    ...     ["sex"],
    ...     features=[semidp.Feature("ill", ["n", "y"])],
    ... )
    >>> also_known(semidp.run(plan, {"sex": ["f", "m", "m", "f"], "ill": ["n", "y", "n", "n"]}))
    ([('ill', 'any 3 records', '0.25-zCDP, which is (4.43669, 1e-9)-DP', 'stronger')], 0)
    """
    delta = release.plan.report_delta
    guarantees, left = release.also_known()
    rows = []
    for name, guarantee in guarantees.items():
        order = change(guarantee.tradeoff, release.guarantee.tradeoff, delta)
        than = "as strong" if order is Order.EQUAL else str(order.value)
        rows.append((name, str(guarantee.adjacency), strength(guarantee, delta)[-1], than))
    return rows, left


def files(release: ReleaseFiles) -> list[tuple[str, str]]:
    """Name the files of a release and say what they hold."""
    words = []
    for result in release.results:
        words += result.file_words(release.form)
    if release.partition is not None:
        words += _parts_file_words(release.partition)
    if release.sources:
        words.append(
            (
                SOURCES,
                (f"the {len(release.sources)} releases that are combined, a folder each"),
            )
        )
    words += [(name, f"the exact counts of {total.title}") for total, name in release.exact_files()]
    if any(name.endswith(".csv") for name, _ in words):
        words.append(
            (METADATA, "what the columns of these files mean, for machines (CSV on the Web)")
        )
    if release.presentation.workbook:
        words.append(
            (
                WORKBOOK,
                "all tables and exact totals as a workbook, with a first sheet on what they are",
            )
        )
    if release.sdmx is not None:
        words += [(name, "the same as SDMX-CSV") for name in release.sdmx.columns]
        words.append((STRUCTURE, "what the SDMX files hold: data structures and code lists"))
    if release.presentation.places is not None:
        words.append((MAP, "the outlines of the places on the maps"))
    words.append(("release.json", "the plan, the exact totals and the guarantee, for machines"))
    return words


def _parts_file_words(partition: Partition) -> list[tuple[str, str]]:
    """Say what the files of the first part hold, and where all parts are listed."""
    first, depth = partition.parts[0], partition.depth
    words = [
        (f"{first.folder}/{name}", f"the same of one {depth}, in every detail")
        for name in first.files
    ]
    return [*words, ("parts.json", f"every {depth} and its files, for machines")]


def budget_parts(plan: Plan) -> list[str]:
    """Say how a budget is divided; nothing where there is one part.

    >>> from semidp import Budget
    >>> from semidp.publish import TableRequest
    >>> wanted = [
    ...     TableRequest(["sex"], Budget.zcdp(1), name="a"),
    ...     TableRequest(["age"], Budget.zcdp(3), name="b"),
    ... ]
    >>> budget_parts(Plan(wanted))
    ['1-zCDP for a', '3-zCDP for b']
    """
    if len(plan.requests) < 2:
        return []
    parts = []
    for request in plan.requests:
        if request.budget is None:
            continue
        several = len(request.tables) > 1
        spender = f"{len(request.tables)} tables together" if several else request.name
        parts.append(f"{_name_budget(request.budget)} for {spender}")
    return parts


def _name_budget(budget: Budget) -> str:
    return (
        str(budget).partition(" (")[0]
        if budget.kind == "approximate"
        else name_tradeoff(budget.tradeoff()) or str(budget)
    )


def said_of_several(release: ReleaseFiles) -> list[str]:
    """Say what holds for all results of a kind together."""
    by_type: dict[type[Published], list[Published]] = {}
    for result in release.results:
        by_type.setdefault(type(result), []).append(result)
    return [
        sentence
        for result_type, results in by_type.items()
        for sentence in result_type.said_of_several(results)
    ]


def cautions(release: ReleaseFiles) -> list[str]:
    """Say where noise dominates what is published."""
    return [sentence for result in release.results for sentence in result.cautions()]


_LEVELS_READ = re.compile(
    r"The list of levels of (.*) was read from the data and is published without protection\."
)


def together_disclosed(disclosures: Sequence[str]) -> list[str]:
    """Return disclosures with one sentence for all features whose levels were read from the data.

    >>> said = "The list of levels of {} was read from the data and is published without "
    >>> said += "protection."
    >>> together_disclosed([said.format("sex"), said.format("age")])
    ['The lists of levels of sex and age were read from the data and are published without
    protection.']
    """
    # The same sentence for every feature would bury the disclosures of another kind.
    matches = [_LEVELS_READ.fullmatch(sentence) for sentence in disclosures]
    names = [match[1] for match in matches if match]
    if len(names) < 2:
        return list(disclosures)
    unmatched = [
        sentence for sentence, match in zip(disclosures, matches, strict=True) if match is None
    ]
    every = f"{', '.join(names[:-1])} and {names[-1]}"
    together = (
        f"The lists of levels of {every} were read from the data and are published without"
        " protection."
    )
    return [together, *unmatched]


def describe_unit(release: ReleaseFiles) -> str:
    """Say what one record stands for, and whether that was checked."""
    if release.scope.protection is not None:
        return _unit(release.scope.protection)
    if release.plan.id:
        return f"One record is one person: this was checked with the column {release.plan.id!r}."
    return (
        "Each record is taken to be one person. This was not checked. A person with several records"
        " is protected less."
    )


def limits(release: ReleaseFiles) -> list[str]:
    """Say what the release does not protect."""
    unit = describe_unit(release)
    if release.sources:
        repeated = (
            "Releases of the same data that are not combined here are not accounted for. All of"
            " them together protect less than each alone."
        )
        unprotected = [] if release.stated is None else [release.guarantee.explain().unprotected]
        return [*unprotected, unit, repeated, *together_disclosed(release.scope.disclosures)]
    repeated = (
        "This release was charged to a ledger, a file that adds up the privacy loss of all releases"
        " of the data that it lists."
        if release.ledger
        else (
            "No ledger was given, so other releases of the same data are not accounted for. All of"
            " them together protect less than each alone."
        )
    )
    explanation = release.guarantee.explain()
    return [
        explanation.unprotected,
        explanation.side_information,
        unit,
        repeated,
        *together_disclosed(release.scope.disclosures),
    ]


def _unit(protection: Protection) -> str:
    """Say whom the promise is about, and what is not taken into account."""
    return (
        f"The promise is about {protection.who}: that nobody has more was checked with the column"
        f" {protection.id!r}. What all {protection.records} of one {protection.noun} have in common"
        f" is not taken into account. Somebody who knows that a value is the same in all"
        f" {protection.records} of one {protection.noun} knows more than the promise allows for."
    )


def summary(release: ReleaseFiles, where: str | None = None, word: str = "written") -> str:
    """Return the release in a few lines, for a terminal; `word` says how its report is at
    `where`.
    """
    scope = release.scope
    rows = [("exact", text) for text in exact_part(scope.dataspace, scope)]
    rows += [("with noise", text) for text in noisy_part(release)]
    rows += [("clipped", text) for text in clipping_parts(release.plan)]
    rows += [("compared", text) for text in comparison_parts(release.plan)]
    for result in release.results:
        rows += result.summary_lines()
    rows += [("apart", text) for text in said_of_several(release)]
    rows += [("budget", text) for text in budget_parts(release.plan)]
    rows += [("claim", text) for text in _claims(release)]
    if release.stated is not None:
        rows.append(("adjacency", together_text(scope)))
    rows += strength_rows(release_strength(release))
    if not scope.adjacency.protects_groups:
        rows += [("otherwise", text) for text in explain_other_adjacency(release)]
    if where:
        rows.append((word, where))
    lines = [f"{label:10} {text}" for label, text in rows]
    if not release.private:
        # It comes first, so that nobody takes the guarantee below at its word.
        lines = ["NOT PRIVATE: drawn with a seed or by a mechanism meant for studies.", "", *lines]
    return "\n".join(lines)


def clipping_parts(plan: Plan) -> list[str]:
    """Say what becomes of values outside the declared bounds, whether or not there are any.

    >>> import semidp
    >>> clipping_parts(semidp.Plan([semidp.mean("age", by="ward", bounds=(0, 100))]))
    ['age to 0 … 100: a value outside counts as the nearest bound']
    """
    said: dict[str, None] = {}
    for request in plan.requests:
        outcome = getattr(request, "outcome", None)
        # a column of zeros and ones has no other value
        if outcome is None or (outcome.lower, outcome.width) == (0, outcome.upper):
            continue
        bounds = f"{plain(outcome.lower)} … {plain(outcome.upper)}"
        text = f"{outcome.column} to {bounds}: a value outside counts as the nearest bound"
        said[text] = None
    return list(said)


def comparison_parts(plan: Plan) -> list[str]:
    """Say what counts as no where a private column is compared with a value.

    >>> import semidp
    >>> comparison_parts(semidp.Plan([semidp.proportion("died=Y", by="ward")]))
    ['died with Y: any other value counts as no, also a code such as NA unless declared missing']
    """
    outcomes = [getattr(request, "outcome", None) for request in plan.requests]
    compared = [each.column.partition("=") for each in outcomes if each and "=" in each.column]
    said = [
        f"{column} with {value}: any other value counts as no, also a code such as NA unless"
        " declared missing"
        for column, _, value in compared
    ]
    return list(dict.fromkeys(said))


def _claims(release: ReleaseFiles) -> list[str]:
    """Return every claim once; what exact totals fix needs none."""
    claims = [result.claim_text() for result in release.results if not result.is_fixed]
    return list(dict.fromkeys(claims))


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
