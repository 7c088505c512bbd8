"""Numbers and their nouns and verbs agree: sentences are rendered with 0, 1, 2 and more, and read by
a few rules of English.
"""

import re
from pathlib import Path

import pytest

import semidp
from semidp.present.report import sentences
from semidp.present.report.sentences import explain_linked_promise, name_exact_facts
from semidp.promise.guarantee import Guarantee
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.protection import ChangedUnits, Protection
from semidp.promise.tradeoff.budget import gaussian
from semidp.publish.presentation import BallReport, ExchangeReport
from tests.linked.test_unit_promise import Published
from tests.linked.towns import FLAT, Kind, fibers

NOUNS = (
    "record|member|stay|patient|household|unit|home|person|group|cell|table|value|level|part|place"
    "|release|residual|file|exchange|sum|step"
)
VERBS = "move|change|hand|have|are|differ|keep|need|lie"
THIRD = "moves|changes|hands|has|is|differs|keeps|needs|lies"
OTHER = r"(?:other |nearer )?"
MANY = r"(?<![\d.,=])(?<!= )(?:0|[2-9]|\d{2,}|\d{1,3}(?:,\d{3})+)"
RULES = {
    "a plural after one": rf"(?<![\d.,])\b(?:1|one) {OTHER}(?:{NOUNS})s\b",
    "a singular after many": rf"{MANY} {OTHER}(?:{NOUNS})\b(?!s)",
    "one that do": rf"(?<![\d.,])(?<!and )\b(?:1|one) {OTHER}(?:{NOUNS}) (?:that |only )?(?:{VERBS})\b",
    "many that does": rf"(?<!with up to ){MANY} {OTHER}(?:{NOUNS})s (?:that |only )?(?:{THIRD})\b",
    "one at once": rf"(?<![\d.,])(?<!and )\b(?:1|one) (?:{NOUNS})(?: \w+)? (?:together|at once)\b",
    "none that act": r"(?:at most|up to) 0 other",
    "less than none": rf"-\d+ {OTHER}(?:{NOUNS})",
}


def faults(text):
    return [
        f"{rule}: …{text[max(0, found.start() - 30) : found.end() + 20]}…"
        for rule, pattern in RULES.items()
        for found in re.finditer(pattern, text)
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        "Why 1 stay move together",
        "at most 0 other records hand over the published values",
        "at most 1 other records hand over",
        "any 1 records at once",
        "any 1 record that change at once",
        "For any 3 record that change",
        "up to 12 member and 1 households",
        "one other record hand over",
        "2 other records hands over",
        "each of 1 to 3 member",
        "at most -1 other records",
    ],
)
def test_the_rules_find_what_is_wrong(wrong):
    assert faults(wrong)


PROTECTIONS = (
    (None, None),
    (Protection("patient", 1, "stays"), None),
    (Protection("patient", 5, "stays"), None),
    (Protection("household", 1, "members"), ChangedUnits(1, 1, 1)),
    (Protection("household", 1, "members"), ChangedUnits(1, 1, 2)),
    (Protection("household", 3, "members"), ChangedUnits(2, 4, 5)),
)
PROPERTIES = ("name", "used", "pairs", "promise", "column", "same_noise", "restriction", "whose")


@pytest.mark.parametrize("a", [0, 1, 2, 3, 10])
@pytest.mark.parametrize(("protection", "units"), PROTECTIONS)
@pytest.mark.parametrize("kind", [BallReport, ExchangeReport])
def test_an_adjacency_is_described_in_english(kind, a, protection, units):
    if not a and units is not None:
        return  # a whole unit changes one member at least
    words = kind(a, protection, units)
    said = [getattr(words, name) or "" for name in PROPERTIES]
    number = "1 record" if protection is None else f"1 {protection.record}"
    for exact in (True, False):
        said += [words.heading(exact), words.describe_joint_change(exact)]
    said += [words.describe_protection("sex"), *words.why(f"at most {number}")]
    assert [fault for text in said for fault in faults(text)] == []
    assert all(said[:6])


@pytest.mark.parametrize("a", [1, 2, 3])
@pytest.mark.parametrize("relation", [Ball, Exchange])
@pytest.mark.parametrize("exact", ["states", None])
def test_a_guarantee_is_explained_in_english(relation, a, exact):
    people = semidp.Table(semidp.Schema([semidp.Feature("sex", "fm")]), [3, 4])
    space = Dataspace.from_table(people, []) if exact is None else Dataspace.from_description(exact)
    explained = str(Guarantee(space, relation(a), gaussian(1)).explain())
    assert faults(explained) == []


@pytest.mark.parametrize(("least", "most"), [(0, 1), (1, 1), (1, 2)])
def test_what_is_public_about_linked_records_is_said_in_english(least, most):
    kind = Kind((FLAT,), (FLAT,), (0,), least, most)
    towns = next(iter(fibers(kind, 2, 2).values()))
    public = Published(kind, towns, "ball").public
    said = [*name_exact_facts(public), *explain_linked_promise(public), repr(public)]
    assert [fault for text in said for fault in faults(text)] == []
    assert len(said) > 4


ONE_GROUP = {"ward": ["a", "a", "a"], "days": [1, 2, 3], "sex": ["f", "m", "f"]}
ASKED = {
    "a mean": [semidp.mean("days", by="ward", bounds=(0, 9))],
    "a quantile": [semidp.median("days", by="ward", bounds=(0, 9))],
    "a distribution": [semidp.distribution("days", by="ward", bounds=(0, 9))],
    "a table": [semidp.table("ward", "sex")],
    "two tables": [semidp.table("ward", "sex"), semidp.table("ward")],
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_a_release_of_one_group_is_described_in_english(name, adjacency):
    options = {"exact": ["ward"], "adjacency": adjacency}
    if "table" in name:
        options["levels"] = {"sex": ["f", "m"]}
    release = semidp.release(ONE_GROUP, *ASKED[name], mu=1, **options)
    said = [sentences.counted_text(release.scope), sentences.together_text(release.scope)]
    said += [*sentences.noisy_part(release), *sentences.exact_part(release.scope.dataspace)]
    said += [text for result in release.results for _, text in result.summary_lines()]
    said += [*sentences.explain_joint_moves(release.scope), sentences.why_heading(release.scope)]
    page = re.sub(r"(?s)<(style|script|svg)\b.*?</\1>", " ", release.report_html())
    said.append(re.sub(r"<[^>]+>", " ", page))
    assert [fault for text in said for fault in faults(text)] == []


def test_words_put_no_bare_number_before_a_plural():
    """A number that may be 1 stands with its noun by `count_noun`; these never are."""
    several = {
        "{result.releases} releases",  # a combination has two or more
        "{MOST_DRAWN} groups",
        "{len(product.tables)} tables",  # many
        "{len(results)} tables",
        "{len(tables):,} tables",
        "{cells:,} cells",
        "{len(foreseen)} tables",  # one of members and one of units at least
        "{table.parts:,} parts",
        "{len(result.parts):,} parts",
        "{a} records",
        "{self.a} records",
        "{self.a - 1} other records",
        "{most} members",
        "{_LARGEST:,} records",
        "{len(release.sources)} releases",
        "{len(request.tables)} tables",
        "{len(sources)} releases",
        "{error_text(half_width)} records",  # with decimals
        "{error_text(off)} steps",
        "{theirs} steps",
        "{group.size:,} records",  # spread over the values of a distribution
        "{group.steps:,} steps",
    }
    package = Path(semidp.__file__).parent
    files = {*package.rglob("*words.py"), *package.rglob("*sentences.py")}
    files |= {*(package / "publish" / "statistics").rglob("*.py")}
    files |= {*(package / "publish" / "results").rglob("*.py")}
    files.add(package / "promise" / "spaces" / "linked.py")
    bare, counted = [], 0
    for file in files:
        text = file.read_text()
        counted += text.count("count_noun(")
        for found in re.finditer(rf"\{{[^{{}}\"]*\}} {OTHER}(?:{NOUNS})s\b", text):
            if "count_noun" not in found[0] and found[0] not in several:
                bare.append(f"{file.name}: {found[0]}")
    assert bare == []
    assert len(files) > 12
    assert counted >= 30
