"""A release in SDMX, the exchange format of statistics offices: observations as SDMX-CSV 2.0, their
structure as SDMX-ML 2.1.

Every table, statistic and exact total is a data flow. A row of its file is one number: the
dimension INDICATOR names what it counts or estimates, and OBS_STATUS says whether it is exact. Ids
of SDMX hold few characters, so levels have codes, with the levels themselves as names. Depths of a
nested feature are one dimension, and a code has the code above it as its parent.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from xml.etree import ElementTree

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from semidp.promise.accounting.periods import Periods
from semidp.publish.release_value import ReleaseValue
from semidp.publish.results.columns import Columns, Labels
from semidp.publish.results.published_table import PublishedTable, exact_totals
from semidp.publish.results.role_columns import Role, Sheet

STRUCTURE = "sdmx-structure.xml"
"""The file of data flows, data structures, code lists and concepts."""
VERSION = "1.0"

_LONGEST = 60  # characters of an id
_STATUSES = {"A": "exact", "E": "with noise", "O": "missing"}
_CONFIDENTIALITY = {"F": "free for publication", "N": "not for publication"}
_CONCEPTS = {
    "INDICATOR": "what is counted or estimated",
    "TIME_PERIOD": "the period that the data are about",
    "OBS_VALUE": "the number",
    "OBS_STATUS": "whether the number is exact",
    "CONF_STATUS": "whether the number may be published",
    "STANDARD_ERROR": "the standard error of the number, from the noise alone",
    "STRUCTURE": "",
    "STRUCTURE_ID": "",
    "ACTION": "",
}
"""Names that columns of a file have besides its dimensions."""


class _Ids:
    """Ids for names: like them, but of the characters that SDMX takes, and each used once.

    >>> ids = _Ids()
    >>> [ids.add(name) for name in ("18-24", "65 +", "65_+", "Zürich", "東京", "")]
    ['18-24', '65', '65_2', 'Zurich', 'C5', 'C6']
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._made = 0

    def add(self, name: str, *, component: bool = False) -> str:
        """Return a new id; that of a component begins with a letter and has capitals."""
        self._made += 1
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        plain_id = re.sub(r"[^A-Za-z0-9_-]+", "_", plain)[:_LONGEST].strip("_")
        if component:
            plain_id = plain_id.upper().replace("-", "_")
            plain_id = plain_id if plain_id[:1].isalpha() else f"X_{plain_id}"
        plain_id = plain_id or f"C{self._made}"
        free, number = plain_id, 1
        while free in self._taken:
            number += 1
            free = f"{plain_id}_{number}"
        self._taken.add(free)
        return free


@define(eq=False)
class _Codes:
    """A code list: a code for each path of labels, after those above it."""

    id: str
    name: str
    codes: dict[tuple[str, ...], str] = field(factory=dict)
    ids: _Ids = field(factory=_Ids)

    def add(self, path: tuple[str, ...]) -> str:
        """Return the code of a path, which is new or not."""
        if path not in self.codes:
            if len(path) > 1:
                self.add(path[:-1])
            self.codes[path] = self.ids.add("_".join(path))
        return self.codes[path]


@frozen(eq=False)
class _Indicator:
    """One column of numbers, with what belongs to it."""

    name: str
    meaning: str
    values: NDArray[Any]
    errors: NDArray[Any] | None = None
    ends: Mapping[str, NDArray[Any]] = field(factory=dict)
    exact: NDArray[np.bool_] | None = None
    """Which numbers have no error; all of them unless given."""


@frozen(eq=False)
class _DataFlow:
    """One file: its dimensions, each with its code list, and its numbers."""

    id: str
    title: str
    dimensions: Mapping[str, _Codes]
    attributes: tuple[str, ...]
    columns: Columns


class SdmxFiles:
    """The SDMX files of a release.

    >>> import semidp
    >>> people = {"sex": [*"ffm"]}
    >>> release = semidp.release(people, semidp.table("sex"), exact=["sex"], mu=1)
    >>> files = SdmxFiles(release, "SEMIDP")
    >>> list(files.columns)
    ['table.sdmx.csv', 'exact-sex.sdmx.csv']
    >>> exact = b"".join(files.columns["exact-sex.sdmx.csv"].csv()).decode()
    >>> print("\\n".join(exact.splitlines()[:2]))
    STRUCTURE,STRUCTURE_ID,ACTION,SEX,INDICATOR,OBS_STATUS,CONF_STATUS,OBS_VALUE
    dataflow,SEMIDP:EXACT_SEX(1.0),I,f,count,A,F,2
    """

    def __init__(self, release: ReleaseValue, agency: str) -> None:
        self._release = release
        self._agency = agency
        self._lists: dict[tuple[str, ...], _Codes] = {}
        self._list_ids = _Ids(["CL_OBS_STATUS", "CL_CONF_STATUS"])
        self._flow_ids = _Ids()
        self._concepts: dict[str, str] = {}
        self._named: dict[tuple[str, str], str] = {}
        self._component_ids = _Ids(_CONCEPTS)

    @property
    def columns(self) -> dict[str, Columns]:
        """What the files of observations hold, by their names."""
        return {name: flow.columns for name, flow in self._flows.items()}

    @cached_property
    def _time_period(self) -> str | None:
        plan = self._release.plan
        if plan is None or plan.period is None:
            return None
        return Periods.from_any(plan.period).time_period

    @cached_property
    def _flows(self) -> dict[str, _DataFlow]:
        flows: dict[str, _DataFlow] = {}
        for stem, flow in self._list_flows():
            # Stems are told apart for file systems that tell no capitals apart, and so are these.
            flows[f"{stem}.sdmx.csv"] = flow
        return flows

    def _list_flows(self) -> Iterator[tuple[str, _DataFlow]]:
        space = self._release.scope.dataspace
        chains = [
            part.names for kind in space.kinds for part in space.for_kind(kind).schema.features
        ]
        stems: list[str] = []
        for name, published in self._release.items():
            stem = getattr(published, "name", name)
            stems.append(stem)
            columns = published.columns()
            if isinstance(published, PublishedTable):
                own_chains = [part.names for part in published.schema.features]
                indicators = _of_table(published, columns)
                title = f"{stem}: {' × '.join(published.as_asked().schema.names)}"
            else:
                own_chains, indicators = chains, _of_sheet(published)
                title = published.heading or published.words or stem
            yield stem, self._flow(stem, title, columns, own_chains, indicators)
        for total in exact_totals(space, stems):
            columns = total.columns()
            ((name, counts),) = columns.numbers.items()
            indicator = _Indicator("count", columns.meanings[name], counts)
            own_chains = [part.names for part in total.table.schema.features]
            title = f"exact counts of {total.title}"
            yield total.stem, self._flow(total.stem, title, columns, own_chains, [indicator])

    def _flow(
        self,
        stem: str,
        title: str,
        columns: Columns,
        chains: Sequence[tuple[str, ...]],
        indicators: Sequence[_Indicator],
    ) -> _DataFlow:
        rows, several = columns.rows, len(indicators)
        flow = self._flow_ids.add(stem, component=True)
        labels: dict[str, Labels] = {}
        dimensions: dict[str, _Codes] = {}
        for names in _dimensions(columns, chains):
            words = [_texts(columns, name) for name in names]
            # A feature has one code list in all files; other labels, such as terms of a regression,
            # have one of their own.
            is_feature = any(names == chain[: len(names)] for chain in chains)
            codes = self._list_codes(names, () if is_feature else (flow,))
            paths = list(zip(*words, strict=True))
            distinct = {path: number for number, path in enumerate(dict.fromkeys(paths))}
            ids = tuple(codes.add(path) for path in distinct)
            numbers = np.array([distinct[path] for path in paths], dtype=np.int64)
            dimension = self._component_id("dimension", names[-1])
            dimensions[dimension] = codes
            labels[dimension] = Labels(ids, codes=np.tile(numbers, several))
        asked = self._list_codes(("INDICATOR",), (flow,))
        places = np.repeat(np.arange(several), rows)
        labels["INDICATOR"] = Labels(
            tuple(asked.add((each.name,)) for each in indicators), codes=places
        )
        dimensions["INDICATOR"] = asked
        values = np.concatenate([each.values for each in indicators])
        missing = ~np.isfinite(values)
        exact = np.concatenate([_exact(each) for each in indicators])
        statuses = np.where(missing, 2, np.where(exact, 0, 1))
        once = np.zeros(len(values), np.int64)
        if self._time_period is not None:
            labels["TIME_PERIOD"] = Labels((self._time_period,), codes=once)
        labels["OBS_STATUS"] = Labels(tuple(_STATUSES), codes=statuses)
        free = "F" if self._release.private else "N"
        labels["CONF_STATUS"] = Labels((free,), codes=once)
        attributes: dict[str, NDArray[Any]] = {}
        if any(each.errors is not None for each in indicators):
            attributes["STANDARD_ERROR"] = _stack([each.errors for each in indicators], rows)
        for end in dict.fromkeys(end for each in indicators for end in each.ends):
            attribute = self._component_id("end", end)
            attributes[attribute] = _stack([each.ends.get(end) for each in indicators], rows)
        constant = ("dataflow", f"{self._agency}:{flow}({VERSION})", "I")
        first = {
            name: Labels((text,), codes=once)
            for name, text in zip(("STRUCTURE", "STRUCTURE_ID", "ACTION"), constant, strict=True)
        }
        written = Columns(
            {**first, **labels},
            {"OBS_VALUE": values, **attributes},
            {name: self._concepts.get(name) or _CONCEPTS.get(name, "") for name in labels},
            tuple(dimensions),
        )
        return _DataFlow(flow, title, dimensions, tuple(attributes), written)

    def _list_codes(self, names: tuple[str, ...], own: tuple[str, ...]) -> _Codes:
        # The coarsest depth names a list: other files may go to other depths.
        key = (*own, names[0])
        if key not in self._lists:
            made = self._list_ids.add("_".join(("CL", names[0], *own)), component=True)
            self._lists[key] = _Codes(made, names[0])
        return self._lists[key]

    def _component_id(self, kind: str, name: str) -> str:
        if (kind, name) not in self._named:
            made = self._component_ids.add(name, component=True)
            self._named[kind, name] = made
            self._concepts[made] = name
        return self._named[kind, name]

    # --- what they mean

    def structure(self) -> bytes:
        """Return the data flows, code lists, concepts and data structures as SDMX-ML 2.1."""
        flows = self._flows.values()
        document = _Element("message:Structure", {f"xmlns:{key}": url for key, url in _SPACES})
        header = document.add("message:Header")
        header.add("message:ID", text=f"{self._agency.replace('.', '_')}-RELEASE")
        header.add("message:Test", text="false" if self._release.private else "true")
        header.add("message:Prepared", text=self._release.created)
        header.add("message:Sender", id=self._agency)
        parts = document.add("message:Structures")
        listed = parts.add("structure:Dataflows")
        for flow in flows:
            one = self._maintained(listed, "Dataflow", flow.id, flow.title)
            self._refer(one.add("structure:Structure"), f"DSD_{flow.id}")
        listed = parts.add("structure:Codelists")
        for codes in self._lists.values():
            one = self._maintained(listed, "Codelist", codes.id, codes.name)
            for path, code in codes.codes.items():
                item = one.add("structure:Code", id=code)
                item.name(path[-1])
                if len(path) > 1:
                    item.add("structure:Parent").add("Ref", id=codes.codes[path[:-1]])
        for name, meanings in (("OBS_STATUS", _STATUSES), ("CONF_STATUS", _CONFIDENTIALITY)):
            one = self._maintained(listed, "Codelist", f"CL_{name}", _CONCEPTS[name])
            for code, meaning in meanings.items():
                one.add("structure:Code", id=code).name(meaning)
        scheme = self._maintained(
            parts.add("structure:Concepts"), "ConceptScheme", "CONCEPTS", "what columns hold"
        )
        told = {key: words for key, words in _CONCEPTS.items() if words}
        if self._time_period is None:
            del told["TIME_PERIOD"]
        for concept, words in {**told, **self._concepts}.items():
            scheme.add("structure:Concept", id=concept).name(words)
        listed = parts.add("structure:DataStructures")
        for flow in flows:
            self._describe(listed, flow)
        ElementTree.indent(document.element)
        written = ElementTree.tostring(document.element, encoding="utf-8", xml_declaration=True)
        return bytes(written) + b"\n"

    def _describe(self, listed: "_Element", flow: _DataFlow) -> None:
        one = self._maintained(listed, "DataStructure", f"DSD_{flow.id}", flow.title)
        parts = one.add("structure:DataStructureComponents")
        dimensions = parts.add("structure:DimensionList", id="DimensionDescriptor")
        for place, (name, codes) in enumerate(flow.dimensions.items(), start=1):
            dimension = dimensions.add("structure:Dimension", id=name, position=str(place))
            self._component(dimension, name, codes.id)
        if self._time_period is not None:
            last = str(len(flow.dimensions) + 1)
            time = dimensions.add("structure:TimeDimension", id="TIME_PERIOD", position=last)
            self._component(time, "TIME_PERIOD", None, "ObservationalTimePeriod")
        attributes = parts.add("structure:AttributeList", id="AttributeDescriptor")
        coded: dict[str, str | None] = {"OBS_STATUS": "CL_OBS_STATUS"}
        coded["CONF_STATUS"] = "CL_CONF_STATUS"
        for name, enumeration in {**coded, **dict.fromkeys(flow.attributes)}.items():
            status = "Conditional" if enumeration is None else "Mandatory"
            attribute = attributes.add("structure:Attribute", id=name, assignmentStatus=status)
            self._component(attribute, name, enumeration)
            of_value = attribute.add("structure:AttributeRelationship")
            of_value.add("structure:PrimaryMeasure").add("Ref", id="OBS_VALUE")
        measures = parts.add("structure:MeasureList", id="MeasureDescriptor")
        measure = measures.add("structure:PrimaryMeasure", id="OBS_VALUE")
        self._component(measure, "OBS_VALUE", None)

    def _maintained(self, parent: "_Element", kind: str, id: str, name: str) -> "_Element":
        made = parent.add(f"structure:{kind}", id=id, agencyID=self._agency, version=VERSION)
        made.name(name)
        return made

    def _refer(self, parent: "_Element", id: str, **more: str) -> None:
        parent.add("Ref", id=id, agencyID=self._agency, version=VERSION, **more)

    def _component(
        self, component: "_Element", name: str, codes: str | None, form: str = "Double"
    ) -> None:
        component.add("structure:ConceptIdentity").add(
            "Ref",
            id=name,
            maintainableParentID="CONCEPTS",
            maintainableParentVersion=VERSION,
            agencyID=self._agency,
        )
        held = component.add("structure:LocalRepresentation")
        if codes is None:
            held.add("structure:TextFormat", textType=form)
        else:
            self._refer(held.add("structure:Enumeration"), codes)


_URL = "http://www.sdmx.org/resources/sdmxml/schemas/v2_1"
_SPACES = [(key, f"{_URL}/{key}") for key in ("message", "structure", "common")]
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that an XML file cannot hold."""


class _Element:
    """An element of XML to which others are added."""

    def __init__(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.element = ElementTree.Element(tag, dict(attributes))

    def add(self, tag: str, text: str | None = None, **attributes: str) -> "_Element":
        """Add an element below, and return it."""
        made = _Element(tag, attributes)
        made.element.text = text
        self.element.append(made.element)
        return made

    def name(self, text: str) -> None:
        """Give it a name in English."""
        held = _NO_XML.sub("\ufffd", text) or "(empty)"
        _Element.add(self, "common:Name", held).element.set("xml:lang", "en")


def _dimensions(columns: Columns, chains: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the columns that tell rows apart: those of a nested feature together."""
    key = tuple(columns.labels) if columns.key is None else columns.key
    left, dimensions = list(key), []
    while left:
        nested = [names for names in chains if names[0] == left[0]]
        names: tuple[str, ...] = (left[0],)
        for chain in nested:
            while len(names) < len(chain) and chain[len(names)] in left:
                names = chain[: len(names) + 1]
        dimensions.append(names)
        left = [name for name in left if name not in names]
    return dimensions


def _texts(columns: Columns, name: str) -> list[str]:
    if name in columns.labels:
        return [str(label) for label in columns.labels[name].column(columns.rows)]
    return [str(number) for number in columns.numbers[name].tolist()]


def _of_table(table: PublishedTable, columns: Columns) -> list[_Indicator]:
    numbers = columns.numbers
    errors = numbers["standard_error"]
    ends = {
        short: numbers[name]
        for short, name in (("lower", "estimate_low"), ("upper", "estimate_high"))
        if name in numbers
    }
    means = columns.meanings
    return [
        _Indicator(
            "estimate", means["estimate"], numbers["estimate"], errors, ends, exact=errors == 0
        ),
        _Indicator("count", means["count"], numbers["count"], exact=errors == 0),
    ]


def _of_sheet(sheet: Sheet) -> list[_Indicator]:
    counted = [one for one in sheet.role_columns if one.role is Role.count]
    indicators = [_Indicator(one.name, one.meaning, np.asarray(one.values)) for one in counted]
    for one in sheet.measured:
        errors = None if one.error is None else np.asarray(one.error.values)
        ends = {end.name: np.asarray(end.values) for end in one.ends}
        values = np.asarray(one.estimate.values)
        exact = np.zeros(len(values), bool) if errors is None else errors == 0
        name, meaning = one.estimate.name, one.estimate.meaning
        indicators.append(_Indicator(name, meaning, values, errors, ends, exact))
    return indicators


def _exact(indicator: _Indicator) -> NDArray[np.bool_]:
    if indicator.exact is None:
        return np.ones(len(indicator.values), bool)
    return indicator.exact


def _stack(columns: Sequence[NDArray[Any] | None], rows: int) -> NDArray[np.float64]:
    """Put columns below each other; one that is missing is empty."""
    empty = np.full(rows, np.nan)
    return np.concatenate([empty if one is None else one for one in columns])
