"""A plan: everything about a release that can be decided before the data are read.

A `Plan` is a frozen value with a TOML and a JSON form; it holds no data and no address, so it
can be reviewed, kept and reused. `pipeline` runs it.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve, field, frozen

from semidp.errors import InputError, SchemaError
from semidp.promise.accounting.periods import Periods
from semidp.promise.documents import from_toml, toml_text
from semidp.promise.exact import Number, count_noun, exact, plain
from semidp.promise.progress import facts
from semidp.promise.schema.features import SIZE, Feature, Nest
from semidp.promise.schema.outcome import ALL_LEVEL, ALL_RECORDS
from semidp.promise.schema.schema import Schema, StructuralZero
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.spaces.linked import Link, Quarters, members_text
from semidp.promise.spaces.protection import MOST_RECORDS, Protect, Protection
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.level_bins import Microdata
from semidp.publish.sources.readings import EQUAL, KINDS, both_readings, check_readings
from semidp.publish.statistics.protocol.requests import read_entries
from semidp.publish.written_values import flag, only_keys, text, texts

if TYPE_CHECKING:
    from semidp.publish.statistics.protocol.requests import Request
    from semidp.publish.statistics.tables.asked import TableRequest


class AdjacencyChoice(StrEnum):
    """Named choices of the protected pairs: any a(t) records (worst case or definition), or
    exchanges of one person.

    >>> Plan(adjacency=AdjacencyChoice.definition).adjacency
    <AdjacencyChoice.definition: 'definition'>
    """

    worst_case = "worst-case"
    definition = "definition"
    exchange = "exchange"


_ADD_OR_REMOVE = ("add-remove", "add-or-remove", "add/remove", "unbounded", "add", "remove")


def chosen_adjacency(adjacency: Adjacency) -> AdjacencyChoice | int:
    """Return the entry of an adjacency in a plan: a number of records, or the name of exchanges.

    The number of records that an exchange changes follows from the exact totals.
    """
    return adjacency.a if adjacency.protects_groups else AdjacencyChoice.exchange


def adjacency_from(choice: AdjacencyChoice | int | str) -> AdjacencyChoice | int:
    """Read an adjacency: ``worst-case``, ``definition``, ``exchange``, or a number of records of at
    least 1.

    >>> adjacency_from("3"), adjacency_from("worst-case")
    (3, <AdjacencyChoice.worst_case: 'worst-case'>)
    """
    written = str(choice)
    if written in list(AdjacencyChoice):
        return AdjacencyChoice(written)
    is_whole = written.isascii() and written.isdigit()
    # twenty digits are beyond the limit already, and more would only take time to read
    if is_whole and 1 <= int(written[:20]) < 10**18:
        return int(written)
    if written.lower() in _ADD_OR_REMOVE:
        raise InputError(
            "a release states the number of records exactly, which alone would break a promise"
            " about adding or removing one: data without a public number of records are refused;"
            " ask for worst-case, definition, exchange or a number of records that change"
        )
    raise InputError(
        "the adjacency must be worst-case, definition, exchange or a whole number of at least 1,"
        f" not {written[:40]!r}"
    )


def margins_from(value: "Iterable[Margin | str | Iterable[str]]") -> tuple[Margin, ...]:
    """Read a list of margins.

    >>> margins_from(["sex", ["sex", "region"]])
    (Margin('sex'), Margin('sex', 'region'))
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f'invariants are a list of margins, such as ["{value}"], not {value!r}')
    return tuple(Margin.from_names(margin) for margin in value)


def _features(value: Iterable[Feature]) -> tuple[Feature, ...]:
    return _all(value, Feature, "features")


def _nests(value: Iterable[Nest]) -> tuple[Nest, ...]:
    return _all(value, Nest, "nests")


def _zeros(value: Iterable[StructuralZero]) -> tuple[StructuralZero, ...]:
    return _all(value, StructuralZero, "structural zeros")


def _all(value: Any, kind: type, what: str) -> tuple[Any, ...]:
    if not isinstance(value, Iterable) or isinstance(value, (str, Mapping)):
        raise InputError(f"the {what} of a plan are a list of {kind.__name__}, not {value!r}")
    items = tuple(value)
    if not all(isinstance(item, kind) for item in items):
        raise InputError(f"the {what} of a plan are a list of {kind.__name__}")
    return items


def _requests(value: "Iterable[Request | TableRequest]") -> "tuple[Request, ...]":
    """Read what is to be released, kind by kind; tables without a budget are put together."""
    if not isinstance(value, Iterable) or isinstance(value, (str, Mapping)):
        raise InputError(f"the requests of a plan are a list, not {value!r}")
    asked = tuple(value)
    # One request alone has no place among others: the kinds of statistics are not looked up for it.
    if len(asked) < 2 and all(hasattr(item, "as_request") for item in asked):
        return tuple(item.as_request() for item in cast("tuple[Request, ...]", asked))
    from semidp.publish.statistics.protocol.statistic import group_requests

    return group_requests(asked)


def _count(value: str | None) -> str | None:
    return None if value is None else text(value, "the count column")


def _where(value: str | None) -> str | None:
    return None if value is None else text(value, "the condition on records")


def _id(value: str | None) -> str | None:
    return None if value is None else text(value, "the id column")


def _most(value: Any) -> int | None:
    if value is None:
        return None
    is_flag = isinstance(value, bool)
    if is_flag or not isinstance(value, int) or not 1 <= value <= MOST_RECORDS:
        raise InputError(
            f"the most records of a person is a whole number from 1 to {MOST_RECORDS:,}"
        )
    return value


def _check_records_name(value: Any) -> str | None:
    return None if value is None else text(value, "what records are called")


def _levels_from_data(value: bool) -> bool:
    return flag(value, "levels_from_data")


def _period(value: Any) -> str | None:
    return None if value is None else str(Periods.from_any(text(value, "the period of the data")))


def _delta(value: Number) -> Fraction:
    delta = exact(value, "the reporting delta")
    if not 0 < delta < 1:
        raise InputError(f"the reporting delta must lie between 0 and 1, not {plain(delta)}")
    return delta


def _protect(value: Any) -> Protect:
    if value not in list(Protect):
        raise InputError(f"linked records protect a member or a unit, not {str(value)[:40]!r}")
    return Protect(value)


def _check_derived(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "the derived columns of units")


def _aggregate(value: Any) -> str:
    return text(value, "an aggregate")


@frozen
class UnitFeature:
    """A feature of units that is computed from their members, where the data are.

    Parameters
    ----------
    feature
        Its name, and the levels or bins of its values; other values are refused.
    aggregate
        An SQL expression over the members of one unit, in the words of DuckDB.

    Examples
    --------
    >>> UnitFeature(Feature("children", "0123"), "count(*) FILTER (WHERE age < 18)").to_json()
    {'name': 'children', 'levels': ['0', '1', '2', '3'], 'aggregate': 'count(*) FILTER (WHERE age <
    18)'}
    """

    feature: Feature
    aggregate: str = field(converter=_aggregate)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.feature, Feature) or self.feature.above:
            raise InputError(
                "a feature of units that is computed has levels or bins, and does not nest"
            )
        if self.name == SIZE:
            raise InputError(
                f"{SIZE!r} is the number of members of every unit: call an aggregate otherwise"
            )

    @property
    def name(self) -> str:
        """Its name."""
        return self.feature.name

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values: a ``[[unit_feature]]`` of a plan."""
        return {**self.feature.to_json(), "aggregate": self.aggregate}

    @classmethod
    def from_json(cls, entry: Any) -> "UnitFeature":
        """Read what `to_json` wrote."""
        if not isinstance(entry, Mapping) or "aggregate" not in entry:
            raise InputError(
                "a unit_feature of a plan has a name, an aggregate, and levels or bins"
            )
        other_keys = {key: value for key, value in entry.items() if key != "aggregate"}
        return cls(Feature.from_json(other_keys), entry["aggregate"])


def _quarters(value: Any) -> Quarters | None:
    return value if value is None or isinstance(value, Quarters) else Quarters.from_json(value)


def _source(value: Any) -> str | None:
    return None if value is None else text(value, "the source of units")


def _unit_features(value: Iterable[UnitFeature]) -> tuple[UnitFeature, ...]:
    return _all(value, UnitFeature, "unit features")


@frozen
class LinkedUnits:
    """How the records of a plan (members) are linked to units, which are counted too.

    Parameters
    ----------
    link
        The column that names the unit, in both files.
    protect
        Whom the promise is about: one ``member``, or a whole ``unit`` with all its members.
    most, least
        The bounds on the members of a unit; `least` is 0 or 1.
    derived
        Columns of units that depend on their members, besides the size.
    exact
        The margins of units that are published exactly, by their own features.
    features
        Features of units that are computed from their members, each a `UnitFeature`; they are
        derived.
    quarters
        A column of units and its levels that are group quarters, counted in no table of units.
    source
        The source of the units, unless given elsewhere. It is not published: a written plan
        holds no address.

    Examples
    --------
    >>> LinkedUnits("household", "member", 8, exact=["zone"]).to_json()
    {'link': 'household', 'protect': 'member', 'most': 8, 'least': 1, 'exact': [['zone']]}
    """

    link: str
    protect: Protect = field(converter=_protect)
    most: int
    least: int = 1
    derived: tuple[str, ...] = field(default=(), converter=_check_derived)
    exact: tuple[Margin, ...] = field(default=(), converter=margins_from)
    features: tuple[UnitFeature, ...] = field(default=(), converter=_unit_features)
    quarters: Quarters | None = field(default=None, converter=_quarters)
    source: str | None = field(default=None, converter=_source, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        text(self.link, "the link column")
        _ = self.bounds

    @property
    def bounds(self) -> Link:
        """The public facts about how members belong to units."""
        computed = [part.name for part in self.features]
        derived = tuple(dict.fromkeys((SIZE, *self.derived, *computed)))
        return Link(self.protect, self.least, self.most, derived, self.link, self.quarters)

    @property
    def description_rows(self) -> list[tuple[str, str]]:
        """How units are linked, in a few words: for a notebook.

        >>> LinkedUnits("household", "member", 8, exact=["zone"]).description_rows
        [('units', 'linked by household, 1 to 8 members each; one member is protected'), ('exact
        units', 'zone')]
        """
        bounds = f"{members_text(self.least, self.most)} each"
        whom = "one member" if self.protect is Protect.member else "a whole unit"
        rows = [("units", f"linked by {self.link}, {bounds}; {whom} is protected")]
        exact_margins = ", ".join(map(str, self.exact))
        rows.append(("exact units", exact_margins or "only their number"))
        if self.quarters is not None:
            kinds = ", ".join(self.quarters.kinds)
            rows.append(("quarters", f"{self.quarters.feature} {kinds}"))
        if self.derived:
            rows.append(("derived", ", ".join(self.derived)))
        rows += [(part.name, part.aggregate) for part in self.features]
        return rows

    @property
    def names(self) -> tuple[str, ...]:
        """The features of exact totals of units."""
        return tuple(dict.fromkeys(name for margin in self.exact for name in margin.names))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        entry: dict[str, Any] = {"link": self.link}
        entry["protect"] = str(self.protect)
        entry["most"] = self.most
        entry["least"] = self.least
        if self.derived:
            entry["derived"] = list(self.derived)
        if self.exact:
            entry["exact"] = [list(margin.names) for margin in self.exact]
        if self.quarters is not None:
            entry["quarters"] = self.quarters.to_json()
        return entry

    @classmethod
    def from_json(
        cls, value: Any, features: Iterable[UnitFeature] = (), folder: Path | None = None
    ) -> "LinkedUnits":
        """Read what `to_json` wrote, or the [units] of a plan file, next to its computed features.

        A source that is a file is named as seen from `folder`.
        """
        if not isinstance(value, Mapping):
            raise InputError('units of a plan are a table such as [units] link = "household"')
        only_keys(
            value,
            {"link", "protect", "most", "least", "derived", "exact", "quarters", "source"},
            "the units of a plan",
        )
        missing = [key for key in ("link", "protect", "most") if key not in value]
        if missing:
            raise InputError(f"the units of a plan need {' and '.join(missing)}")
        entries = {**value}
        source = entries.get("source")
        if folder is not None and isinstance(source, str) and "://" not in source:
            entries["source"] = str(folder / source)
        if "exact" in entries:
            entries["exact"] = _margin_entries(value, "exact")
        return cls(**entries, features=features)


def _margin_entries(document: Mapping[str, Any], key: str) -> list[Any]:
    """Return the margins that a document lists at a key; a name alone is a margin of one
    feature.
    """
    entries = read_entries(document, key)
    return [[names] if isinstance(names, str) else names for names in entries]


def _units(value: LinkedUnits | None) -> LinkedUnits | None:
    if value is not None and not isinstance(value, LinkedUnits):
        raise InputError("the units of a plan are LinkedUnits(link, protect, most)")
    return value


def _microdata(value: Any) -> Microdata | None:
    return value if value is None or isinstance(value, Microdata) else Microdata.from_json(value)


def _claim(value: Any) -> str | None:
    if value not in (None, "exact"):
        raise InputError(
            f'a plan may ask for the claim "exact", or leave it out, not {str(value)[:40]!r}'
        )
    return None if value is None else str(value)


def _read_as(value: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(
            f'how columns are read is a mapping such as {{"admitted": "month"}}, not {value!r}'
        )
    columns = value if isinstance(value, Mapping) else tuple(value)
    return check_readings(columns) if columns else ()


@frozen(slots=False, repr=False)
class Plan:
    """What to publish exactly, what to publish with noise, and how the data are to be read.

    Parameters
    ----------
    requests
        What to release with noise: tables, statistics of private outcomes by group, regressions and
        so on. Tables without a budget of their own share one. All requests share the same
        invariants.
    invariants
        The margins published exactly; none means that only the number of records is.
    features
        The declared features: levels, bins, null level. A feature that an invariant covers may be
        left out: the invariant publishes its levels.
    structural_zeros
        Combinations of levels that cannot occur.
    adjacency
        Which reading of a(t) to use, a number of records, or exchanges.
    count, where, id
        The column of counts, the condition on records, and the column that identifies a person.
    levels_from_data
        Read undeclared levels of unpublished features from the data, which the report then calls a
        disclosure.
    report_delta
        The delta at which a guarantee without one is restated as (epsilon, delta).
    claim
        ``"exact"``: only mechanisms whose claim holds for the numbers that the computer draws
        (default: any).
    most
        How many records a person may have, if more than one: the promise then covers one person
        with up to that many; `id` names the person. Public, like the number of persons.
    records
        What records are called in words, such as ``"stays"`` (default: records). Only with
        `most`.
    nests
        Nested features whose levels are read from the data, by the names of their depths. As for
        other levels, an invariant publishes them or the report says that they are disclosed.
    units
        The units of which records are members, if units are counted too.
    read_as
        How the values of columns are written, such as ``{"admitted": "month", "pay": "1.234,5"}``.
    period
        The period that the data are about, such as ``"2026Q3"``. The ledger of a series charges it.
    microdata
        Synthetic records: their columns are measured one by one, then in pairs on bins. The tables
        of both phases become the requests of the plan once the bins are known.

    Examples
    --------
    >>> from semidp.publish import TableRequest
    >>> plan = Plan([TableRequest(["sex", "region"], Budget.zcdp("1/2"))], ["sex", "region"])
    >>> Plan.from_toml(plan.to_toml()) == plan
    True
    """

    requests: "tuple[Request, ...]" = field(default=(), converter=_requests)
    invariants: tuple[Margin, ...] = field(default=(), converter=margins_from)
    features: tuple[Feature, ...] = field(default=(), converter=_features)
    structural_zeros: tuple[StructuralZero, ...] = field(default=(), converter=_zeros)
    adjacency: AdjacencyChoice | int = field(
        default=AdjacencyChoice.worst_case, converter=adjacency_from
    )
    count: str | None = field(default=None, converter=_count)
    where: str | None = field(default=None, converter=_where)
    id: str | None = field(default=None, converter=_id)
    levels_from_data: bool = field(default=False, converter=_levels_from_data)
    report_delta: Fraction = field(default=Fraction(1, 10**9), converter=_delta)
    nests: tuple[Nest, ...] = field(default=(), converter=_nests)
    claim: str | None = field(default=None, converter=_claim)
    most: int | None = field(default=None, converter=_most)
    records: str | None = field(default=None, converter=_check_records_name)
    units: LinkedUnits | None = field(default=None, converter=_units)
    read_as: tuple[tuple[str, str], ...] = field(default=(), converter=_read_as)
    period: str | None = field(default=None, converter=_period)
    microdata: Microdata | None = field(default=None, converter=_microdata)

    def __attrs_post_init__(self) -> None:
        self._check_persons()
        if self.units is not None:
            used = KINDS if self.units.features else ()
            for column, how in self.read_as:
                if how not in used:
                    raise InputError(
                        f"read_as of {column!r} is {how}, and of linked sources only aggregates ask"
                        " what a column holds (integer, decimal or text): leave it out"
                    )
        declared = {name for feature in self.features for name in feature.names}
        named = {name for zero in self.structural_zeros for name, _ in zero.levels}
        if not named <= declared:
            raise SchemaError(
                "structural zeros need the features that they name: declare their levels"
            )
        depths = [name for part in self.chains for name in part.names]
        if len(set(depths)) < len(depths):
            raise SchemaError(
                "two features of the plan have the same name, or depths that do: give each its own"
            )
        # Some file systems tell no capitals apart, and one file would replace the other.
        names = [file.casefold() for request in self.requests for file in request.files]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"two requests would write {twice}: give each a name of its own")
        if self.units is not None:
            self._refuse_beside(self.units)
        if self.microdata is not None and (self.units is not None or self.outcomes):
            raise InputError(
                "microdata are records of one file and tables of counts: leave linked units and"
                " statistics of outcomes out"
            )

    def _refuse_beside(self, units: LinkedUnits) -> None:
        """Refuse what is not built for linked records."""
        for request in self.requests:
            request.refuse_units()
        if self.count is not None or self.id is not None or self.where is not None:
            raise InputError(
                "count, where and id are not supported with linked units: keep such records in a"
                " file"
            )
        declared = [feature.levels for feature in self.features if feature.name == SIZE]
        if declared and declared != [units.bounds.sizes]:
            raise InputError(
                "every number from the least to the most members is a size of units: leave the"
                " levels of size out, and publish 5 and more as one with the top code size=5"
            )
        if self.structural_zeros:
            raise InputError("structural zeros are not supported with linked units: leave them out")
        if isinstance(self.adjacency, int) or self.adjacency is AdjacencyChoice.definition:
            raise InputError(
                "linked records have the adjacency worst-case or exchange: leave the number out"
            )

    def _check_persons(self) -> None:
        """Refuse what does not go together if a person has several records."""
        if self.most is None:
            if self.records is not None:
                raise InputError(
                    "⟨records⟩ says what the records of a person are called: give ⟨most⟩ with it"
                )
            return
        if self.id is None:
            raise InputError(
                "⟨most⟩ says how many records a person may have: name the column of persons with"
                " ⟨id⟩"
            )
        if self.id in {*self.names, *self.outcomes}:
            raise InputError(
                f"the id column {self.id!r} says whose a record is: it cannot be a feature or an"
                " outcome of the release"
            )
        if self.adjacency is AdjacencyChoice.definition and self.most > 1:
            raise InputError(
                "the literal reading of a(t) is known for one record a person: leave ⟨adjacency⟩"
                " out, or ask for exchange"
            )

    @property
    def protection(self) -> Protection | None:
        """Whom the promise is about where a person may have several records; None if a record is
        a person.

        >>> Plan(id="patient", most=5, records="stays").protection.who
        'one patient with up to 5 stays'
        """
        if self.most is None or self.id is None:
            return None
        return Protection(self.id, self.most, self.records or "records")

    def __repr__(self) -> str:
        noisy = ", ".join(request.name for request in self.requests) or "nothing"
        exact = ", ".join(map(str, self.invariants)) or "the number of records"
        budget = self.budget or "budgets apart"
        return f"Plan({noisy}; exact: {exact}; {budget}; adjacency: {self.adjacency})"

    def _repr_html_(self) -> str:
        exact = ", ".join(map(str, self.invariants)) or "only the number of records"
        rows = [("exact", exact)]
        if self.units is not None:
            rows += self.units.description_rows
        for request in self.requests:
            features = " × ".join(request.features)
            rows.append((request.name, f"{features}: {request.budget}"))
        rows.append(("adjacency", str(self.adjacency)))
        rows += [(part.name, _levels_text(part)) for part in self.chains]
        return facts("Plan", rows)

    @property
    def chains(self) -> tuple[Feature | Nest, ...]:
        """Every feature that is declared, with its levels or by the names of its depths."""
        unit_features = () if self.units is None else self.units.features
        computed = [part.feature for part in unit_features]
        return (*self.features, *computed, *self.nests)

    @property
    def tables(self) -> "tuple[TableRequest, ...]":
        """Every table of counts that is asked for, with a budget of its own or a shared one."""
        return tuple(table for request in self.requests for table in request.tables)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The columns of outcomes, which nothing publishes."""
        return tuple(column for request in self.requests for column in request.private_columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        special = [name for name in (self.count, self.id) if name is not None]
        named = dict.fromkeys((*self.names, *self.outcomes, *special))
        return tuple(named)

    @property
    def names(self) -> tuple[str, ...]:
        """Every feature that the plan uses, in order of first mention."""
        # Columns of microdata come first: they fix the order before the tables are known.
        used = [] if self.microdata is None else list(self.microdata.columns)
        used += [name for request in self.requests for name in request.features]
        used += [name for margin in self.invariants for name in margin.names]
        used += () if self.units is None else self.units.names
        return tuple(dict.fromkeys(used))

    @property
    def budget(self) -> Budget | None:
        """The sum of all budgets; None if they are of different
        kinds.
        """
        return Budget.sum_budgets([request.budget for request in self.requests])

    def with_budget(self, budget: Budget) -> "Plan":
        """Return the plan with this budget for every request that has none of its own; tables share
        it.
        """
        requests: list[Request] = []
        for request in self.requests:
            requests += [request] if request.budget else request.dividing(budget)
        return evolve(self, requests=requests)

    @property
    def value_shares(self) -> list[tuple[str, str]]:
        """The columns with a requested share of one value, each with the value.

        >>> import semidp
        >>> Plan([semidp.proportion("ok=Y", by="ward")]).value_shares
        [('ok', 'Y')]
        """
        parts = [column.partition("=") for column in self.outcomes]
        return [(column, value) for column, _, value in parts if value]

    def with_values_read(self) -> "Plan":
        """Return the plan with columns read as its requests need them; "ok=Y" means whether ok is
        Y.

        >>> import semidp
        >>> Plan([semidp.proportion("ok=Y", by="ward")]).with_values_read().read_as
        (('ok=Y', 'equal'),)
        """
        readings = dict(self.read_as)
        for request in self.requests:
            for column, how in request.needed_readings.items():
                readings[column] = both_readings(column, readings.get(column), how)
        for column in self.outcomes:
            if "=" in column:
                readings.setdefault(column, EQUAL)
        features = self.features
        declared = {feature.name for feature in features}
        if ALL_RECORDS in readings and ALL_RECORDS not in declared:
            features = (*features, Feature(ALL_RECORDS, [ALL_LEVEL]))
        invariants = self.invariants
        # The number of records is public in any case.
        if ALL_RECORDS in readings and Margin(ALL_RECORDS) not in invariants:
            invariants = (*invariants, Margin(ALL_RECORDS))
        return evolve(self, read_as=readings, features=features, invariants=invariants)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values; `from_json` reads them back."""
        from semidp.publish.statistics.protocol.statistic import plan_entries

        # in the order in which a plan file has them: single values first, then lists of tables
        document: dict[str, Any] = {}
        document["invariants"] = [list(margin.names) for margin in self.invariants]
        for key in _VALUES:
            document[key] = _plain_value(getattr(self, key))
        document["read_as"] = dict(self.read_as) or None
        document |= plan_entries(self.requests)
        unit_features = () if self.units is None else self.units.features
        document["feature"] = [part.to_json() for part in self.features]
        document["feature"] += [nest.to_json() for nest in self.nests]
        document["unit_feature"] = [part.to_json() for part in unit_features]
        document["structural_zero"] = [zero.to_json() for zero in self.structural_zeros]
        return {key: value for key, value in document.items() if value not in (None, [], False)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], folder: Path | None = None) -> "Plan":
        """Read what `to_json` wrote; lookup files are named as seen from `folder`, and become part
        of the plan.
        """
        from semidp.publish.statistics.protocol.statistic import plan_keys, requests_from

        alone = {*_VALUES, "read_as"} - {"units"}
        lists = {"invariants", "feature", "structural_zero", "unit_feature"}
        only_keys(value, {*alone, *lists, "units", *plan_keys()}, "a plan")
        features, zeros, nests = read_declarations(value, folder)
        computed = [UnitFeature.from_json(entry) for entry in read_entries(value, "unit_feature")]
        if computed and "units" not in value:
            raise InputError("a unit_feature is computed from the members of a unit: give [units]")
        requests = requests_from(value)
        invariants = _margin_entries(value, "invariants")
        units = None
        if "units" in value:
            units = LinkedUnits.from_json(value["units"], computed, folder)
        single_values = {key: value[key] for key in alone if key in value}
        return cls(
            requests=requests,
            invariants=invariants,
            features=features,
            structural_zeros=zeros,
            nests=nests,
            units=units,
            **single_values,
        )

    def to_toml(self) -> str:
        """Write the plan as TOML."""
        return toml_text(self.to_json())

    @classmethod
    def from_toml(cls, text: str, folder: Path | None = None) -> "Plan":
        """Read a plan from TOML text; lookup files are named as seen from `folder`."""
        if "\n" not in text.strip() and text.strip().endswith(".toml"):
            raise InputError(
                f"a plan is read from its text, not its path: Path({text!r}).read_text()"
            )
        try:
            document = from_toml(text)
        except ValueError as error:
            raise InputError(f"the plan is not valid TOML: {str(error)[:200]}") from None
        return cls.from_json(document, folder)


_VALUES: tuple[str, ...] = ("adjacency", "count", "where", "id", "most", "records")
_VALUES += ("levels_from_data", "period", "report_delta", "claim", "units", "microdata")
"""The fields of a plan that are single values, in the order of a plan file."""


def _plain_value(value: Any) -> Any:
    """Return a field of a plan as a plan file has it."""
    if isinstance(value, LinkedUnits | Microdata):
        return value.to_json()
    if isinstance(value, Fraction):
        return plain(value)
    return str(value) if isinstance(value, StrEnum) else value


def _levels_text(part: Feature | Nest) -> str:
    if isinstance(part, Nest):
        return f"{' > '.join(part.names)}: levels read from the data"
    first_levels = ", ".join(part.levels[:6])
    and_more = ", …" if len(part.levels) > 6 else ""
    return f"{count_noun(len(part.levels), 'level')}: {first_levels}{and_more}"


def read_declarations(
    value: Mapping[str, Any], folder: Path | None = None
) -> tuple[tuple[Feature, ...], tuple[StructuralZero, ...], tuple[Nest, ...]]:
    """Return the declarations of a plan or a schema file: features, structural zeros, and nests
    without levels.

    >>> read_declarations({"feature": [{"name": "county", "nest": ["state", "county"]}]})
    ((), (), (Nest(names=('state', 'county'), repeat=False, null_level=None),))
    """
    nest_entries: list[Any] = []
    features: list[Any] = []
    for entry in read_entries(value, "feature"):
        is_nested = isinstance(entry, Mapping) and "nest" in entry
        # a tree or a lookup file declares the levels of a nest: only others are read from the data
        has_levels = is_nested and ("tree" in entry or "lookup" in entry)
        target = nest_entries if is_nested and not has_levels else features
        target.append(entry)
    nests = tuple(map(Nest.from_json, nest_entries))
    if not features:
        if value.get("structural_zero"):
            raise SchemaError(
                "structural zeros need the features that they name: declare their levels"
            )
        return (), (), nests
    with_levels: dict[str, Any] = {"feature": features}
    if "structural_zero" in value:
        with_levels["structural_zero"] = value["structural_zero"]
    whole = Schema.from_json(with_levels, folder)
    return whole.features, whole.structural_zeros, nests
