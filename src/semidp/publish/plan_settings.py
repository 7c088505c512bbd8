"""From settings to values of the library: the plan, the data source, and the run options.

The command line and `semidp.release` both come through here, so a setting means the same in
both.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from attrs import evolve

from semidp.errors import InputError, SchemaError
from semidp.promise.exact import format_value, positive
from semidp.promise.noise.randomness import Randomness, SeededRandomness, SystemRandomness
from semidp.promise.schema.features import Feature, Nest, bin_edges, value_text
from semidp.promise.schema.schema import Schema, toml_document
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.level_bins import Microdata
from semidp.publish.pipeline import RunOptions
from semidp.publish.plan import LinkedUnits, Plan, read_declarations
from semidp.publish.plan_changes import divide_budget, with_missing
from semidp.publish.presentation import AGENCY, Presentation
from semidp.publish.resources import memory_from
from semidp.publish.results.columns import Form, form_named
from semidp.publish.results.place_maps import PlaceMap
from semidp.publish.settings import Given
from semidp.publish.signing import Signer
from semidp.publish.sources.linked_records import LinkedData
from semidp.publish.sources.opening import Source, open_source
from semidp.publish.sources.readings import DATES, are_dates, date_bins, months
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.survey import computed_features, with_units
from semidp.publish.written_values import read_rules

_LONGEST_TEXT = 2**26  # characters of a plan or schema
_EXCEL, _SDMX = "xlsx", "sdmx"


def build_plan(given: Given, requests: Iterable[Any]) -> Plan:
    """Return the plan that settings describe, with a budget divided among its requests.

    >>> from semidp import table
    >>> plan = build_plan(Given({"exact": ["sex"], "mu": 1}), [table("sex", "region")])
    >>> plan
    Plan(table; exact: sex; mu = 1 (Gaussian DP); adjacency: worst-case)
    """
    plan = evolve(describe(given), requests=name_uniquely(requests)).with_values_read()
    if given.has("missing") or plan.read_as:
        plan = with_missing(plan, given["missing"] or {})
    plan = evolve(
        plan,
        requests=_with_mechanism(plan.requests, given["mechanism"]),
        invariants=read_margins(given["exact"]),
    )
    linked = given.has_units
    shares = {name: positive(value, "⟨share⟩") for name, value in (given["share"] or {}).items()}
    # Linked tables share one budget, which `with_units` divides between members and units.
    plan = divide_budget(plan, read_budget(given), {} if linked else shares)
    plan = with_targets(plan, given["target_error"])
    if linked:
        plan = _link_units(plan, given, shares)
    plan = plan.with_values_read()
    refuse_unused(given, plan)
    return plan


def build_microdata_plan(
    given: Given,
    columns: Sequence[str],
    ordered: Sequence[str] = (),
    target: Sequence[str] = (),
    rules: Sequence[str] = (),
) -> Plan:
    """Return the plan of microdata that settings describe.

    Parameters
    ----------
    given
        What is exact, the budget, and how data are read.
    columns, ordered, target
        As for `Microdata`.
    rules
        Rules that hold in every record; see `read_rules`.
    """
    budget = read_budget(given)
    if budget is None:
        raise InputError("microdata need a budget: give ⟨rho⟩, ⟨mu⟩, or ⟨epsilon⟩ with ⟨delta⟩")
    plan = describe(given).with_values_read()
    dated = [name for name, how in plan.read_as if how in DATES and name in columns]
    asked = Microdata(columns, budget, tuple(dict.fromkeys((*ordered, *dated))), target)
    return evolve(
        plan,
        invariants=read_margins(given["exact"]),
        structural_zeros=(*plan.structural_zeros, *read_rules(rules, plan.features)),
        microdata=asked,
    )


def describe(given: Given) -> Plan:
    """Return a plan without requests: features, how records are read, who is protected."""
    plan = declare_features(given)
    readings = dict(given["read_as"] or {})
    # The edges of dates fix how the column is read; another reading would move records.
    for column, _ in plan.read_as:
        if column in readings:
            raise InputError(
                f"⟨bins⟩ of dates says already how {column!r} is read: leave it out of ⟨read_as⟩"
            )
    names = ("adjacency", "period", "count", "where", "id", "most", "records", "claim")
    # Unless told, a guarantee is reported at the delta of its budget.
    deltas = (given["report_delta"], given["delta"] or None, plan.report_delta)
    return evolve(
        plan,
        read_as={**dict(plan.read_as), **readings},
        report_delta=next(delta for delta in deltas if delta is not None),
        levels_from_data=given["levels_from_data"],
        **{name: given[name] for name in names},
    )


def read_budget(given: Given) -> Budget | None:
    """Return the budget from the settings, or None."""
    keys = ("epsilon", "delta", "rho", "mu")
    return Budget.from_plan_keys({key: given[key] for key in keys})


def read_margins(value: Any) -> tuple[Margin, ...]:
    """Read one margin, or a list of several; a tuple of names is one joint margin.

    >>> read_margins(["sex", ("region", "age")]), read_margins(("region", "age"))
    ((Margin('sex'), Margin('region', 'age')), (Margin('region', 'age'),))
    """
    several = isinstance(value, list) or (
        isinstance(value, tuple) and any(isinstance(names, tuple) for names in value)
    )
    if several:
        return tuple(Margin.from_names(names) for names in value)
    return (Margin.from_names(value),) if value else ()


def with_targets(plan: Plan, errors: Mapping[str, Any] | None) -> Plan:
    """Return a plan with target errors on its tables without a budget."""
    if not errors:
        return plan
    texts = {
        names if isinstance(names, str) else ",".join(names): str(error)
        for names, error in errors.items()
    }
    requests: list[Request] = []
    named = False
    for request in plan.requests:
        # A table with a budget of its own has its error already.
        open_tables = bool(request.targets) and request.budget is None
        named |= open_tables
        requests.append(
            request.with_target_errors("⟨target_error⟩", texts) if open_tables else request
        )
    if not named:
        names = next(iter(texts))
        raise InputError(
            f"⟨target_error⟩ names {names}: no table that shares the budget has these features"
            " (none)"
        )
    return evolve(plan, requests=requests)


# --- features -------------------------------------------------------------------------------------


def declare_features(given: Given) -> Plan:
    """Return a plan with the features, structural zeros and nests that are declared."""
    declared = _read_schema(given["schema"])
    dates: dict[str, str] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, levels in (given["levels"] or {}).items():
        if isinstance(levels, str) or not isinstance(levels, Iterable):
            raise InputError(
                f"⟨levels⟩ of {name!r} is a list such as ['f', 'm'], not {format_value(levels)}"
            )
        parts[name] = {"levels": expand_ranges(levels)}
    for name, written in (given["bins"] or {}).items():
        if name in parts:
            raise InputError(f"feature {name!r} has levels and bins: give one of them")
        if not isinstance(written, Iterable):
            raise InputError(
                f"⟨bins⟩ of {name!r} is a list of edges such as [0, 18, 65], not"
                f" {format_value(written)}"
            )
        edges = bin_edges(written) if isinstance(written, str) else tuple(written)
        parts[name] = {"bins": edges}
        if are_dates(edges):
            labels, dates[name] = date_bins(name, edges)
            parts[name] = {"levels": labels}
    features = {feature.name: feature for feature in declared.features}
    named = (Nest(chain) for chain in _read_chains(given["nest"]))
    open_nests = {nest.name: nest for nest in (*declared.nests, *named)}
    nested = [feature for feature in declared.features if feature.above]
    chains: list[Feature | Nest] = [*open_nests.values(), *nested]
    owner = {name: chain.name for chain in chains for name in chain.names}
    nulls = given["null_level"] or {}
    for name in {**parts, **nulls}:
        finest = owner.get(name, name)
        # Two declarations of one feature may differ, and nobody says which one counts.
        if name in parts and (finest in features or finest in open_nests):
            if finest in open_nests:
                raise SchemaError(
                    f"{name!r} is nested, and ⟨levels⟩ and ⟨bins⟩ do not say in which level of"
                    f" {open_nests[finest].names[0]!r} its levels lie: declare their paths in"
                    " ⟨schema⟩ (docs/nested.md)"
                )
            raise SchemaError(
                f"feature {name!r} is declared by ⟨schema⟩ and by another setting: keep one"
            )
        if finest in open_nests:
            open_nests[finest] = evolve(open_nests[finest], null_level=nulls[name])
        elif finest in features:
            features[finest] = _with_null_level(features[finest], nulls[name])
        elif name in parts:
            features[name] = Feature(name, null_level=nulls.get(name), **parts[name])
        else:
            raise SchemaError(
                f"⟨null_level⟩ needs the levels of {name!r}: declare them with ⟨levels⟩ or ⟨bins⟩"
            )
    return evolve(declared, features=features.values(), nests=open_nests.values(), read_as=dates)


def _with_null_level(feature: Feature, null_level: str) -> Feature:
    if feature.above:
        return Feature.from_paths(
            feature.names, feature.paths(), repeat=True, null_level=null_level
        )
    # The levels of bins follow from their edges, and are not given with them.
    levels = () if feature.bins else feature.levels
    return Feature(feature.name, levels, feature.bins, null_level)


def _read_schema(schema: Schema | Path | str | None) -> Plan:
    if schema is None:
        return Plan()
    if isinstance(schema, Schema):
        return Plan(features=schema.features, structural_zeros=schema.structural_zeros)
    path = Path(schema)
    document = toml_document(read_text(path, "⟨schema⟩"))
    if set(document) - {"feature", "structural_zero"}:
        Schema.from_json(document)  # which says what a schema may hold
    features, zeros, nests = read_declarations(document, path.parent)
    return Plan(features=features, structural_zeros=zeros, nests=nests)


def _read_chains(nest: Any) -> list[tuple[str, ...]]:
    """Read one chain of nested features, or several.

    >>> _read_chains(("state", "county")), _read_chains([("state", "county"), ("school", "class")])
    ([('state', 'county')], [('state', 'county'), ('school', 'class')])
    """
    if isinstance(nest, str):
        raise InputError(
            "⟨nest⟩ is a list from coarse to fine, such as ['state', 'county'], not"
            f" {format_value(nest)}"
        )
    several = [] if not nest else [nest] if isinstance(nest[0], str) else nest
    return [tuple(map(str, chain)) for chain in several]


def expand_ranges(levels: Iterable[str]) -> tuple[str, ...]:
    """Return levels with ranges of months, quarters or years written out.

    >>> expand_ranges(["2025-12..2026-02", "later"])
    ('2025-12', '2026-01', '2026-02', 'later')
    """
    words: list[str] = []
    for level in levels:
        first, dots, last = level.partition("..") if isinstance(level, str) else (level, "", "")
        words += months(first, last) if dots and first and last else [level]
    return tuple(words)


def declare_categories(plan: Plan, data: Any) -> Plan:
    """Return a plan with the levels of categorical columns of a data frame that it does not
    declare.

    These are the categories of pandas and of an Enum of polars, which the author of the column
    listed. A Categorical of polars lists what occurs, so its levels count as read from the data.

    >>> import pandas
    >>> from semidp import table
    >>> wards = pandas.Categorical(["a", "b"], categories=["a", "b", "c"])
    >>> plan = declare_categories(Plan([table("ward")]), pandas.DataFrame({"ward": wards}))
    >>> plan.features[0].levels
    ('a', 'b', 'c')
    """
    declared = {name for chain in plan.chains for name in chain.names}
    features = []
    for name in plan.names:
        categories = () if name in declared else _list_categories(data, name)
        if categories:
            features.append(Feature(name, categories))
    return evolve(plan, features=[*plan.features, *features]) if features else plan


def _list_categories(data: Any, name: str) -> tuple[str, ...]:
    module = type(data).__module__.partition(".")[0]
    if module == "polars" and hasattr(data, "collect_schema"):
        kind = data.collect_schema().get(name)
    elif module == "pandas" and list(getattr(data, "columns", ())).count(name) == 1:
        kind = data[name].dtype
    else:
        return ()
    categories = kind.categories if type(kind).__name__ in ("CategoricalDtype", "Enum") else ()
    texts = [value_text(value) for value in categories]
    return tuple(text for text in texts if text is not None)


def refuse_unused(given: Given, plan: Plan) -> None:
    """Refuse declarations of a feature that the plan does not use: probably a mistake.

    A schema file may hold more features than one plan uses; a nested feature is used if one of its
    depths is.
    """
    used = {*plan.names, *dict(plan.value_shares)}
    for part in plan.chains:
        # The depths of one nest are declared together, so using one uses all.
        used |= set(part.names) if used & set(part.names) else set()
    if plan.units is not None:
        used |= {part.name for part in plan.units.features}
    declared = [name for key in ("levels", "bins", "null_level") for name in given[key] or {}]
    declared += [chain[-1] for chain in _read_chains(given["nest"])]
    for name in declared:
        if name not in used:
            raise SchemaError(
                f"{name!r} is declared, and nothing uses it: leave it out, or publish something"
                f" by it (in use: {', '.join(plan.names)})"
            )


# --- requests -------------------------------------------------------------------------------------


def _with_mechanism(requests: Sequence[Request], mechanism: str) -> list[Request]:
    """Return requests with a mechanism: on their tables, or on their statistics if there is no
    table.
    """
    tables = any(request.tables for request in requests)
    if mechanism == "auto":
        return list(requests)
    changed = []
    for request in requests:
        takes_it = bool(request.tables) == tables
        changed.append(request.with_mechanism(mechanism) if takes_it else request)
    # A mechanism that nothing takes would seem to have been used.
    if not tables and changed == list(requests):
        raise InputError(
            "quantiles are chosen, and no noise is drawn for them: leave ⟨mechanism⟩ out"
        )
    return changed


def name_uniquely(asked: Iterable[Any]) -> list[Any]:
    """Return the requests; a second statistic of the same name is named after its groups, too.

    >>> from semidp import mean
    >>> [each.name for each in name_uniquely(mean("pay", by=by, bounds=(0, 9)) for by in "ab")]
    ['mean-pay', 'mean-pay-by-b']
    """
    names: set[str] = set()
    apart = []
    for item in asked:
        name = getattr(item, "name", "")
        if name in names and getattr(item, "outcome", None) is not None:
            item = evolve(item, name=f"{name}-by-{'-'.join(item.features)}")
        apart.append(item)
        names.add(name)
    return apart


_LINKING = {
    "link": "the column that names the unit in both files",
    "protect": "whom the guarantee protects, one member or a whole unit",
    "most_members": "the largest number of members of a unit, which is public",
}


def _link_units(plan: Plan, given: Given, shares: Mapping[str, Fraction]) -> Plan:
    """Return the plan about members and units."""
    for name, what in _LINKING.items():
        if given[name] is None:
            raise InputError(f"linked files need ⟨{name}⟩: {what}")
    units = LinkedUnits(
        given["link"],
        given["protect"],
        given["most_members"],
        given["least"],
        given["derived"],
        features=computed_features(given["aggregate"] or {}, plan.features),
        quarters=given["quarters"],
    )
    return with_units(plan, units, shares, top_code=given["top_code"])


# --- data, and how to run -------------------------------------------------------------------------


def open_records(given: Given, plan: Plan, data: Any) -> Source:
    """Open data as a plan reads them."""
    return open_source(
        data,
        table=given["from_table"],
        count=plan.count,
        where=plan.where,
        id=plan.id,
        most=plan.most,
        hive_partitions=given["hive_partitions"],
        allow_empty=given["allow_empty"],
        read_as=plan.read_as,
        encoding=given["encoding"],
        header_rows=given["header_rows"],
        na=given["na"],
    )


def link_data(given: Given, plan: Plan, members: Any) -> LinkedData:
    """Return the two sources of linked members and units."""
    assert plan.units is not None, "asked for where a plan has units"
    linked = given.has_units
    units = given["units"] if linked else plan.units.source
    if not linked and units is None:
        raise InputError("the plan has [units]: give the source of units too, with ⟨units FILE⟩")
    return LinkedData(
        members,
        # two tables of one database have the same address
        members if units is None else units,
        given["from_table"],
        given["units_from"],
        given["hive_partitions"],
        given["allow_empty"],
        given["encoding"],
        given["header_rows"],
        given["na"],
    )


@contextlib.contextmanager
def open_data(given: Given, plan: Plan, data: Any) -> Iterator[Any]:
    """Open the source of a plan: records, or linked members and units."""
    if plan.units is not None:
        yield link_data(given, plan, data)
        return
    # Units with a plan about one kind of record would be left out without a word.
    if given.has_units:
        raise InputError("the plan has no [units], so ⟨units⟩ has nothing to be linked by")
    with open_records(given, plan, data) as source:
        yield source


def choose_randomness(seed: int | None) -> Randomness:
    """Return the operating system's randomness, or a seeded one."""
    return SystemRandomness() if seed is None else SeededRandomness(seed)


def password_of_environment() -> str:
    """Return the password of a secret key. No option takes it, because other users would see it."""
    password = os.environ.get("SEMIDP_SIGN_PASSWORD")
    if password is None:
        raise InputError(
            "the secret key is encrypted: give its password in SEMIDP_SIGN_PASSWORD, or at a"
            " terminal"
        )
    return password


def build_run_options(
    given: Given,
    randomness: Randomness | None = None,
    password: Callable[[], str] = password_of_environment,
) -> RunOptions:
    """Return the options for running a plan."""
    if randomness is not None and not hasattr(randomness, "secure"):
        raise InputError(
            "⟨randomness⟩ takes a source of random words, such as"
            " semidp.promise.SeededRandomness(1): for a seed give ⟨seed⟩"
        )
    memory = given["memory"]
    options = RunOptions(
        randomness=choose_randomness(given["seed"]) if randomness is None else randomness,
        ledger=given["ledger"],
        label=given["label"],
        memory=memory_from(memory) if isinstance(memory, str) else memory,
        form=_read_form(given["write"]),
        presentation=_read_presentation(given),
        out=given["out"],
        force=given["force"],
        jobs=given["jobs"],
    )
    if given["sign"] is None:
        return options
    return evolve(options, finish=Signer(Path(given["sign"]), password).sign)


def _read_form(write: str | None) -> Form | None:
    """Return the form of the files that commands read; None if none was chosen."""
    # A workbook is for people and SDMX for exchange; commands still read CSV files next to them.
    if write in (None, _EXCEL, _SDMX):
        return None if write is None else Form.csv
    try:
        return form_named(write)
    except InputError:
        raise InputError(
            f"tables are written as csv, parquet, xlsx or sdmx, not {write!r}"
        ) from None


def _read_presentation(given: Given) -> Presentation:
    if given.has("agency") and given["write"] != _SDMX:
        raise InputError("⟨agency⟩ is that of SDMX files: give ⟨write sdmx⟩ too")
    return Presentation(
        title=given["title"],
        contact=given["contact"],
        notes=tuple(given["note"]),
        round_to=given["round_to"],
        mark_below=given["mark_below"],
        workbook=given["write"] == _EXCEL,
        sdmx=given["agency"] or AGENCY if given["write"] == _SDMX else None,
        places=read_places(given),
    )


def read_places(given: Given) -> PlaceMap | None:
    """Return the outlines of places that ⟨map⟩ names."""
    places = given["map"]
    if places is None or isinstance(places, PlaceMap):
        return places
    return PlaceMap.read(Path(places), given["map_key"])


def read_text(path: Path, option: str) -> str:
    """Read a small text file, or a pipe, that a setting names."""
    try:
        # Read up to the limit and no further: a pipe has no size to look at first.
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_TEXT + 1)
        if len(text) <= _LONGEST_TEXT:
            return text
        raise InputError(f"the file {path} that {option} names is too long for one")
    # An error of decoding quotes the bytes that it could not read, so it is replaced.
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the file {path} that {option} names") from None
