"""A guarantee: which datasets are hard to tell apart, and how hard.

`Guarantee` is the triple (D_t, A_a, f) of the paper, with its partial order, an explanation in
plain language, and JSON. How curves combine is in tradeoff; how guarantees add up over several
releases is in accounting. A `Scope` is what is public before any noise is drawn.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from attrs import frozen

from semidp.errors import InputError, Refused
from semidp.promise.documents import Encodable, from_json, read_plain
from semidp.promise.files import replace_file
from semidp.promise.progress import facts, shorten_text
from semidp.promise.spaces.adjacency import Adjacency, Ball
from semidp.promise.spaces.dataspace import RECORD, Datasets, Dataspace
from semidp.promise.spaces.linked import datasets_from_json
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import SemiAdjacency
from semidp.promise.tradeoff.composition import tradeoff_from_json
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.promise.tradeoff.smooth import Gaussian

_INLINE = 4096  # published numbers up to which a dataspace stays inside the file that needs it
_FALSE_ALARMS = Fraction(5, 100)


@frozen
class Explanation:
    """A guarantee in plain language; as text, one paragraph per part.

    >>> str(
    ...     Explanation(
    ...         "What is protected: all.",
    ...         "From whom: all.",
    ...         "Well.",
    ...         "What is not: nothing.",
    ...         "Known: all.",
    ...     )
    ... )
    'What is protected: all.\\n\\nFrom whom: all. Well.\\n\\nWhat is not: nothing.\\n\\nKnown: all.'
    """

    protected: str
    attacker: str
    strength: str
    unprotected: str
    side_information: str

    def __str__(self) -> str:
        against = f"{self.attacker} {self.strength}"
        return "\n\n".join((self.protected, against, self.unprotected, self.side_information))


@frozen(repr=False)
class Guarantee(Encodable):
    """(D_t, A, f): adjacent datasets of D_t can be told apart no better than `f` allows.

    Adjacent means at most `a` records apart (A_a), or exchanges of one person: the two are never
    mixed.

    A number without its dataspace means nothing, so the three stay together (Cho and Awan, Section
    3.3).

    Parameters
    ----------
    dataspace
        The datasets that agree with what is published exactly.
    adjacency
        Which pairs of datasets must be hard to tell apart.
    tradeoff
        The smallest type II error at every type I error.

    Examples
    --------
    Group privacy and Semi-DP with the same curve are not the same guarantee (Cho and Awan,
    Section 3.5):

    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> table = Table(Schema([Feature("sex", "fm")]), [3, 4])
    >>> everything, fixed = (
    ...     Dataspace.from_table(table, []),
    ...     Dataspace.from_table(table, [Margin("sex")]),
    ... )
    >>> group = Guarantee(everything, Ball(2), gaussian(2))
    >>> semi = Guarantee(fixed, Ball(2), gaussian(2))
    >>> semi < group, group <= semi
    (True, False)
    """

    dataspace: Datasets
    adjacency: Adjacency
    tradeoff: Tradeoff

    def __repr__(self) -> str:
        exact, curve = self.dataspace.summary(), shorten_text(self.tradeoff)
        return f"Guarantee({exact}; {self.adjacency}; {curve})"

    def _repr_html_(self) -> str:
        paragraphs = str(self.explain()).split("\n\n")
        parts = [paragraph.partition(": ") for paragraph in paragraphs]
        return facts("Guarantee", [(name, text) for name, _, text in parts])

    def covers(self, other: "Guarantee") -> bool:
        """Whether every pair that `other` protects is provably protected here: IND' ⊆ IND (Cho and
        Awan, 3.5).

        Exchanges lie in A_{q+1} of the same datasets. Conversely, only changes of a single record
        are exchanges.
        """
        return self.adjacency.covers(self.dataspace, other.adjacency, other.dataspace)

    def __le__(self, other: "Guarantee") -> bool:
        """Whether `other` is at least as strong: it covers all pairs and its curve is nowhere
        lower.
        """
        if not other.covers(self):
            return False
        order = other.tradeoff.compare(self.tradeoff)
        return order in (Order.EQUAL, Order.STRONGER)

    def __lt__(self, other: "Guarantee") -> bool:
        """Whether `other` is stronger: at least as strong, and better in the pairs or in the
        curve.
        """
        if not other.covers(self):
            return False
        order = other.tradeoff.compare(self.tradeoff)
        if order is Order.EQUAL:
            return not self.covers(other)
        return order is Order.STRONGER

    def compare(self, other: "Guarantee") -> Order:
        """Return the order of this guarantee and `other`, which may not be comparable.

        >>> from semidp.promise.tradeoff.budget import zcdp
        >>> states, counties = (
        ...     Dataspace.from_description("state totals"),
        ...     Dataspace.from_description("county totals"),
        ... )
        >>> Guarantee(states, Ball(2), zcdp(1)).compare(Guarantee(counties, Ball(2), zcdp(1)))
        <Order.NOT_COMPARABLE: 'not comparable'>
        """
        weaker, stronger = self <= other, other <= self
        if weaker and stronger:
            return Order.EQUAL
        return Order.WEAKER if weaker else Order.STRONGER if stronger else Order.NOT_COMPARABLE

    def compose(self, *others: "Guarantee") -> "Guarantee":
        """Return the guarantee of several measurements of the same data: Semi-DP first, then
        composition.

        Each is stated for the same datasets and records, and the curves compose: ``f1 ⊗ … ⊗ fk``
        (Cho and Awan, 3.6).

        >>> from semidp.promise.tradeoff.budget import gaussian
        >>> part = Guarantee(Dataspace.from_description("state totals"), Ball(2), gaussian("3/5"))
        >>> part.compose(Guarantee(part.dataspace, part.adjacency, gaussian("4/5"))).tradeoff.mu
        Fraction(1, 1)
        """
        pairs = (self.dataspace, self.adjacency)
        if any((other.dataspace, other.adjacency) != pairs for other in others):
            raise Refused(
                "guarantees about other datasets, other numbers of records or another kind of"
                " adjacency do not compose: use a ledger"
            )
        if not others:
            return self
        tradeoff = self.tradeoff.compose(*(other.tradeoff for other in others))
        return Guarantee(self.dataspace, self.adjacency, tradeoff)

    def for_any_records(self, a: int, protection: Protection | None = None) -> "Guarantee":
        """Return what an exchange guarantee implies for any `a` records that change at once: (D_t,
        A_a, f∘…∘f).

        Datasets of D_t that differ in k records are joined by at most k exchanges
        (`Exchange.steps`).

        >>> from semidp.promise.spaces.adjacency import Exchange
        >>> from semidp.promise.tradeoff.budget import gaussian
        >>> exchange = Guarantee(
        ...     Dataspace.from_description("state totals"), Exchange(2), gaussian(1)
        ... )
        >>> any_records = exchange.for_any_records(3)
        >>> any_records.adjacency, any_records.tradeoff.mu
        (Ball(a=3), Fraction(3, 1))
        """
        if isinstance(self.dataspace, Dataspace) and self.dataspace.kinds != (RECORD,):
            # units keep features that no exchange changes, so not all of D_t is joined
            raise Refused(
                "exchanges of linked records do not join all datasets with these totals: state the"
                " guarantee for any members by the adjacency of the release"
            )
        records = Ball(a, protection)
        steps = self.adjacency.steps(records)
        if steps is None:
            raise InputError(
                "only an exchange guarantee is carried over to any records in this way"
            )
        curve = self.tradeoff.group(steps) if steps else Gaussian(Fraction(0))
        return Guarantee(self.dataspace, records, curve)

    def explain(self) -> "Explanation":
        """Return an explanation: what is protected, from whom, how strongly, and what is not.

        >>> from semidp.promise.tradeoff.budget import gaussian
        >>> print(
        ...     Guarantee(
        ...         Dataspace.from_description("state totals"), Ball(2), gaussian(1)
        ...     ).explain()
        ... )
        What is protected: ...at most 2 records...
        """
        attacker = "From whom: anyone who sees the release, with any computing power."
        strength = attacker_sentence(self.tradeoff, self.adjacency.protection)
        return Explanation(
            self._describe_protection(),
            attacker,
            strength,
            self._describe_unprotected(),
            self._side_information(),
        )

    @property
    def is_ordinary(self) -> bool:
        """Whether this is a guarantee without an invariant: only the number of records is published
        exactly.
        """
        alone = isinstance(self.dataspace, Dataspace) and self.dataspace.kinds == (RECORD,)
        return alone and not self.dataspace.margins

    def _describe_protection(self) -> str:
        a = self.adjacency.a
        if a == 0:
            return (
                f"What is protected: nothing. The exact statistics ({self.dataspace.summary()})"
                " leave no other dataset with which this one could be confused."
            )
        if self.is_ordinary:
            if self.adjacency.protection is not None:
                whose = self.adjacency.words.whose
                return (
                    f"What is protected: {whose}. Replacing them hardly changes what is published."
                )
            who = "each person's record" if a == 1 else f"the records of any {a} people together"
            return (
                f"What is protected: {who}. Replacing {'it' if a == 1 else 'them'} hardly changes"
                " what is published."
            )
        return self.adjacency.words.describe_protection(self.dataspace.summary())

    def _describe_unprotected(self) -> str:
        facts = (
            "What a release shows about a group of people, it also shows about each of them,"
            " whether or not they took part."
        )
        whose = self.adjacency.protection
        if self.is_ordinary:
            numbers = "the number of records, which is"
            if whose is not None:
                numbers = f"the numbers of {whose.records} and of {whose.units}, which are"
            return f"What is not protected: {numbers} published exactly. {facts}"
        claim = (
            "A record that contradicts them is ruled out for certain: nobody can claim to have it"
        )
        if whose is not None:
            claim = (
                f"{whose.records.capitalize()} that contradict them are ruled out for certain: no"
                f" {whose.noun} can claim to have them"
            )
        return (
            f"What is not protected: the exact statistics themselves ({self.dataspace.summary()}),"
            f" and everything that follows from them. {claim}. {facts}"
        )

    def _side_information(self) -> str:
        if self.is_ordinary and self.adjacency.a >= 1:
            return (
                "What an attacker may know: everything about all the other people. Knowing their"
                " records does not weaken this guarantee."
            )
        return (
            "What an attacker may know: side information matters here. That is what somebody knows"
            " about the data from elsewhere. Without exact statistics a guarantee holds even"
            " against somebody who knows all other records. With exact statistics it does not."
            " Somebody who knows that some records are not in the data can rule out the datasets"
            " that contain them. Then nobody can claim to have such a record. In the extreme,"
            " side information and the exact statistics together leave a single dataset, and then"
            " nothing is protected. If other exact statistics of the same data are published"
            " elsewhere, name them as exact here too."
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        >>> from semidp.promise.tradeoff.budget import zcdp
        >>> guarantee = Guarantee(
        ...     Dataspace.from_description("state totals"), Ball(2), zcdp("10.24")
        ... )
        >>> Guarantee.from_json(guarantee.to_json()) == guarantee
        True
        """
        adjacency = Adjacency.from_json(document["adjacency"])
        curve = tradeoff_from_json(document["tradeoff"])
        return cls(datasets_from_json(document["dataspace"]), adjacency, curve)

    def save(self, path: str | Path) -> None:
        """Write the guarantee to a JSON file; a large t goes to a file next to it, named and hashed
        in the first.
        """
        path = Path(path)
        document = {**self.to_json(), "dataspace": space_document(self.dataspace, path)}
        replace_file(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Guarantee":
        """Read what `save` wrote; refuse a side file that is missing or was changed."""
        path = Path(path)
        document = read_document(path, "a guarantee")
        try:
            dataspace = space_from(document["dataspace"], path)
            return cls.from_json({**document, "dataspace": dataspace.to_json()})
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"{path} does not hold a guarantee") from None


def space_document(dataspace: Datasets, path: Path) -> dict[str, Any]:
    """Return a dataspace for a JSON file at `path`: itself if small, else a reference to a file
    next to it.

    >>> space_document(Dataspace.from_description("state totals"), Path("guarantee.json"))
    {'description': 'state totals'}
    """
    document = dataspace.to_json()
    if sum(total.counts.size for total in dataspace.totals) <= _INLINE:
        return document
    content = json.dumps(document, ensure_ascii=False).encode()
    name = f"{path.stem}.t-{dataspace.digest[:16]}.json"
    replace_file(path.with_name(name), content)
    return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}


def space_from(document: Mapping[str, Any], path: Path) -> Datasets:
    """Read what `space_document` wrote for the file at `path`.

    >>> space_from({"description": "state totals"}, Path("guarantee.json")).summary()
    'state totals'
    """
    if "file" not in document:
        return datasets_from_json(document)
    beside = path.with_name(Path(document["file"]).name)
    try:
        content = read_plain(beside)
    except OSError:
        raise InputError(
            f"the published values belong in {beside}, which cannot be read: keep both files"
        ) from None
    if hashlib.sha256(content).hexdigest() != document["sha256"]:
        raise InputError(
            f"{beside} was changed after {path.name} was written: restore it, or write both again"
        )
    return datasets_from_json(from_json(content))


def read_document(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON file that holds one object; refuse anything else.

    >>> read_document(Path("/nowhere/ledger.json"), "a ledger")
    Traceback (most recent call last):
    semidp.errors.InputError: cannot read /nowhere/ledger.json, which should hold a ledger
    """
    try:
        document = from_json(read_plain(path))
    except OSError:
        raise InputError(f"cannot read {path}, which should hold {what}") from None
    except ValueError:
        raise InputError(f"{path} does not hold {what}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path} does not hold {what}")
    return document


def attacker_sentence(tradeoff: Tradeoff, protection: Protection | None = None) -> str:
    """Two sentences on the success of the best attacker, in whole percent rounded up.

    A number rounded down would flatter the guarantee.

    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> attacker_sentence(gaussian(1))
    'Suppose an attacker tries to tell your record from another possible one, and tolerates 5 false
    alarms in 100 attempts. The best attack succeeds in at most 26 of 100; guessing succeeds in 5.'
    >>> attacker_sentence(gaussian(1), Protection("patient", 5, "stays"))
    'Suppose an attacker tries to tell your list of stays from another ... guessing succeeds in 5.'
    """
    if tradeoff.is_trivial:
        return (
            "Everything here is published exactly, or follows from what is: the noise adds nothing."
        )
    yours = "record"
    if protection is not None and protection.times > 1:
        yours = f"list of {protection.records}"
    guessing = int(100 * _FALSE_ALARMS)
    return (
        f"Suppose an attacker tries to tell your {yours} from another possible one, and tolerates"
        f" {guessing} false alarms in 100 attempts. The best attack succeeds in at most"
        f" {count_successes(tradeoff)} of 100; guessing succeeds in {guessing}."
    )


def count_successes(tradeoff: Tradeoff) -> int:
    """Number of 100 attempts in which the best attacker succeeds at 5% false alarms, rounded up.

    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> count_successes(gaussian(1)), count_successes(gaussian(10))
    (26, 100)
    """
    power = 1 - float(tradeoff(float(1 - _FALSE_ALARMS)))
    return min(math.ceil(100 * power + 1e-9), 100)


@frozen
class Scope:
    """Public facts about a release before any noise is drawn.

    Parameters
    ----------
    dataspace
        D_t: every dataset that agrees with the published values.
    semi_adjacency
        Both readings of a(t); None if only the caller's number is known.
    adjacency
        The relation that the mechanisms protect.
    disclosures
        What the release reveals besides its invariants and its mechanisms.
    warnings
        What a reader of the report must know.
    persons
        The number of persons, if each may have several records; None if a record is a
        person.

    Examples
    --------
    >>> import semidp
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))],
    ...     ["sex", "region"],
    ... )
    >>> scope = semidp.prepare(plan, {"sex": ["f", "m"], "region": ["n", "s"]}).scope
    >>> scope.adjacency.a, scope.dataspace.summary()
    (2, 'sex, region')
    """

    dataspace: Dataspace
    semi_adjacency: SemiAdjacency | None
    adjacency: Adjacency
    disclosures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    persons: int | None = None

    @property
    def protection(self) -> Protection | None:
        """Whom the promise is about if a person may have several records."""
        return self.adjacency.protection

    def adjacency_json(self) -> dict[str, Any]:
        """Return the adjacency used next to both readings of a(t), as plain values."""
        semi, relation = self.semi_adjacency, self.adjacency.to_json()
        unknown = {
            "worst_case": None,
            "definition": None,
            "bound": None,
            "method": "given, not checked",
        }
        used = {"used": relation.pop("a"), **relation}
        return {**used, **(semi.to_json() if semi else unknown)}
