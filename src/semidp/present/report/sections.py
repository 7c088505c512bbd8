"""Sections of the report on places, maps and sorted bars of published counts, and on how good
records of microdata are.
"""

import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from attrs import frozen

from semidp.inference.records.record_knowledge import RecordErrors, estimate_errors
from semidp.promise.exact import list_some
from semidp.publish.plotting import BLUE, GREY, Figure, drawing, grouped_ticks, svg
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.results.columns import Columns
from semidp.publish.results.grids import Section
from semidp.publish.results.place_maps import PlaceMap
from semidp.publish.statistics.protocol.requests import Published

_MOST_BARS = 60
_FROM_ZERO = ("estimate", "sum")  # columns of counts and sums, whose shades begin at nothing
_NO_VALUE = "#EDEDED"
_MAP_POINTS = np.array([185.0, 190.0])  # how wide and high a map is drawn, about
_MAP_HEIGHTS = 1.1, 3.1  # inches: room for the bar of shades, and no more than a page is wide
# of names: their size, how wide a letter is beside it, and how far one may reach beyond its place
_NAME_SIZE, _LETTER, _OVERHANG = 7.0, 0.55, 1.15


@frozen
class PlaceValues:
    """What is numbered of places: estimates, standard errors, and where noise dominates, by their
    labels.
    """

    title: str
    values: Mapping[str, float]
    errors: Mapping[str, float]
    faint: frozenset[str]


def place_map(
    places: PlaceMap, panels: Sequence[PlaceValues], what: str, start: float | None = 0.0
) -> Figure:
    """Draw a row for each panel: the estimates, and their standard errors; hatched where noise
    dominates. The shades of estimates begin at `start`, or else at the least of them.

    >>> from semidp.publish.results.place_maps import Outline
    >>> square = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
    >>> places = PlaceMap(
    ...     (Outline({"name": "north"}, (square,)), Outline({"name": "south"}, (square,)))
    ... )
    >>> panel = PlaceValues("ill", {"north": 7.0}, {"north": 2.0}, frozenset({"north"}))
    >>> len(place_map(places, [panel], "count").axes)
    4
    """
    height = _map_height(places, what)
    with drawing(7.2, height * len(panels) + 0.2, columns=2, rows=len(panels)) as (figure, axes):
        values = _span(places, panels, [panel.values for panel in panels], start)
        errors = _span(places, panels, [panel.errors for panel in panels], 0.0)
        for row, panel in zip(np.atleast_2d(axes), panels, strict=True):
            _draw(figure, row[0], places, panel, panel.values, Shades(what, "Blues", *values))
            shades = Shades("standard error", "Oranges", *errors)
            _draw(figure, row[1], places, panel, panel.errors, shades)
            row[0].set_title(panel.title, fontsize=10)
    return figure


def _map_height(places: PlaceMap, what: str) -> float:
    """Return how high the row of a map is, in inches: a wide country leaves no empty paper above,
    and what its shades mean is written whole.

    >>> from semidp.publish.results.place_maps import Outline
    >>> wide = ((0.0, 0.0), (9.0, 0.0), (9.0, 2.0), (0.0, 0.0))
    >>> places = PlaceMap((Outline({}, (wide,)),))
    >>> _map_height(places, "count"), _map_height(places, "mean of income_per_week_in_euros")
    (1.1, 2.04)
    """
    rings = [ring for outline in places.outlines for ring in outline.rings]
    corners = np.concatenate([np.array(ring) for ring in rings if ring] or [np.ones((1, 2))])
    width, height = np.maximum(np.ptp(corners, axis=0), 1e-9)
    needed = max(
        _MAP_POINTS[0] * height / width / 72 + 0.35, 0.085 * max(map(len, _wrap(what).splitlines()))
    )
    return float(np.clip(needed, *_MAP_HEIGHTS))


def _wrap(what: str) -> str:
    """Write what shades mean in lines that the bar of a flat map has room for."""
    return textwrap.fill(what, 15, break_long_words=False, break_on_hyphens=False)


@frozen
class Shades:
    """Meaning of the shades of one map: what they show, their colours, and the range of numbers."""

    what: str
    colors: str
    low: float
    high: float


def _span(
    places: PlaceMap,
    panels: Sequence[PlaceValues],
    numbers: Sequence[Mapping[str, float]],
    start: float | None,
) -> tuple[float, float]:
    """Return the least and the largest number that the shades of every panel tell apart.

    Only places that are drawn count, and those without a hatch where there are such: one place of
    mere noise would leave all others the same shade.

    >>> from semidp.publish.results.place_maps import Outline
    >>> places = PlaceMap((Outline({"name": "north"}, ()), Outline({"name": "south"}, ())))
    >>> means = {"north": 41.0, "south": 43.0}
    >>> panels = [PlaceValues("age", means, {}, frozenset())]
    >>> _span(places, panels, [means], 0.0), _span(places, panels, [means], None)
    ((0.0, 43.0), (41.0, 43.0))
    """
    clear: list[float] = []
    drawn: list[float] = []
    for panel, by_label in zip(panels, numbers, strict=True):
        for label in places.match_labels(list(by_label))[0]:
            if np.isfinite(by_label[label]):
                drawn.append(by_label[label])
                clear += [] if label in panel.faint else [by_label[label]]
    spanned = clear or drawn or [0.0]
    low, high = min(spanned), max(spanned)
    if start is None and low < high:
        return low, high
    return min(low, 0.0), max(high, 0.0) or 1.0


def _draw(
    figure: Any,
    axes: Any,
    places: PlaceMap,
    panel: PlaceValues,
    numbers: Mapping[str, float],
    shades: Shades,
) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outlined

    numbered, _ = places.match_labels(list(numbers))
    # What lies beyond has the last shade, and the bar an arrow.
    scale = Normalize(shades.low, shades.high, clip=True)
    colors = colormaps[shades.colors]
    label_of = {number: label for label, number in numbered.items()}
    for number, outline in enumerate(places.outlines):
        label = label_of.get(number)
        value = np.nan if label is None else numbers[label]
        path = Outlined.make_compound_path(
            *(Outlined(np.array(ring)) for ring in outline.rings if len(ring) > 2)
        )
        style: dict[str, Any] = {
            "facecolor": colors(scale(value)) if np.isfinite(value) else _NO_VALUE
        }
        # Noise dominates: the shade alone would be believed.
        style["hatch"] = "////" if label in panel.faint else None
        axes.add_patch(PathPatch(path, edgecolor="#666666", linewidth=0.5, **style))
    axes.autoscale_view()
    axes.set_aspect("equal")
    _write_names(axes, places, label_of)
    axes.set_axis_off()
    shown = [numbers[label] for label in numbered if np.isfinite(numbers[label])]
    bar = figure.colorbar(
        ScalarMappable(scale, colors),
        ax=axes,
        label=_wrap(shades.what),
        shrink=0.8,
        extend=_extend_sides(shown, shades),
    )
    grouped_ticks(bar.ax.yaxis)


def _write_names(axes: Any, places: PlaceMap, label_of: Mapping[int, str]) -> None:
    """Write the names of places where they are wide enough; others are left to the table."""
    from matplotlib.patheffects import withStroke

    rings = {number: _largest_ring(places.outlines[number].rings) for number in label_of}
    corners = np.concatenate([np.array(ring) for ring in rings.values()] or [np.zeros((1, 2))])
    extent = np.maximum(np.ptp(corners, axis=0), 1e-9)
    points = float(np.min(_MAP_POINTS / extent))
    for number, ring in rings.items():
        outline = np.array(ring)
        width = float(np.ptp(outline[:, 0])) * points
        name = label_of[number]
        if _LETTER * _NAME_SIZE * len(name) > _OVERHANG * width:
            continue
        middle = (outline.min(axis=0) + outline.max(axis=0)) / 2
        halo = [withStroke(linewidth=2.2, foreground="white")]
        where = {"ha": "center", "va": "center"}
        axes.text(*middle, name, fontsize=_NAME_SIZE, path_effects=halo, **where)


def _largest_ring(rings: Sequence[Sequence[tuple[float, float]]]) -> Sequence[tuple[float, float]]:
    """The ring with the largest frame: the mainland, and not an island."""
    return max(rings, key=lambda ring: float(np.prod(np.ptp(np.array(ring), axis=0))))


def _extend_sides(numbers: Sequence[float], shades: Shades) -> str:
    """Say to which sides numbers lie beyond the shades, as matplotlib calls it."""
    below, above = min(numbers, default=0.0) < shades.low, max(numbers, default=0.0) > shades.high
    if below and above:
        return "both"
    return "min" if below else "max" if above else "neither"


def sorted_bars(panel: PlaceValues, what: str) -> Figure:
    """Draw one estimate a place as a bar, the largest first, with two standard errors.

    >>> panel = PlaceValues("", {"a": 3.0, "b": 9.0}, {"a": 1.0, "b": 1.0}, frozenset({"a"}))
    >>> [text.get_text() for text in sorted_bars(panel, "count").axes[0].get_yticklabels()]
    ['b', 'a']
    """
    labels = [label for label, value in panel.values.items() if np.isfinite(value)]
    labels.sort(key=lambda label: -panel.values[label])
    values = [panel.values[label] for label in labels]
    reach = [2 * panel.errors[label] for label in labels]
    with drawing(5.4, 0.9 + 0.26 * len(labels)) as (figure, axes):
        colors = [GREY if label in panel.faint else BLUE for label in labels]
        bars = axes.barh(
            range(len(labels)),
            values,
            xerr=reach,
            color=colors,
            height=0.7,
            ecolor="#222222",
            capsize=2,
        )
        for bar, label in zip(bars, labels, strict=True):
            bar.set_hatch("////" if label in panel.faint else None)
        axes.set(
            xlabel=what,
            yticks=range(len(labels)),
            yticklabels=labels,
            ylim=(len(labels) - 0.5, -0.5),
        )
        grouped_ticks(axes.xaxis)
    return figure


_MOST_PANELS = 4
_SHOWN_UNMATCHED = 12
_LEAST_BARS = 3  # groups from which on bars say more than numbers


def place_sections(release: ReleaseFiles) -> Iterator[Section]:
    """Yield a section for every table or statistic that can be shown by place."""
    places = release.presentation.places
    for result in release.results:
        for name, published in result.columns_by_name().items():
            columns = published.columns()
            title = _title(result, name, columns)
            section = None if places is None else _map_section(title, columns, places)
            if section is None:
                section = _bars_section(title, columns)
            if section is not None:
                yield section


def place_pictures(release: ReleaseFiles) -> str:
    """Return the maps of a release as HTML, for a notebook; nothing where no outlines were
    given.
    """
    if release.presentation.places is None:
        return ""
    pictures = []
    for section in place_sections(release):
        if section.figure is not None:
            said = f"<strong>{escape(section.heading)}.</strong> {escape(section.caption)}"
            pictures.append(
                f"<figure>{svg(section.figure)}<figcaption>{said}</figcaption></figure>"
            )
    return "".join(pictures)


def _title(result: Published, name: str, columns: Columns) -> str:
    """Name what is drawn: a table by its features, a statistic as its section does."""
    if _value_column(columns) == "estimate":
        return f"counts by {' and '.join(columns.labels)}"
    return result.title() if len(result.columns_by_name()) == 1 else name


def list_unmatched_places(release: ReleaseFiles) -> list[str]:
    """Say which places the map lacks, or that it names nothing of the release."""
    places = release.presentation.places
    if places is None:
        return []
    said = []
    mapped = False
    for result in release.results:
        for name, published in result.columns_by_name().items():
            columns = published.columns()
            heading = _place_column(columns, places)
            if heading is None:
                continue
            mapped = True
            _, missing = places.match_labels(_distinct(columns, heading))
            if missing:
                named = list_some(missing, _SHOWN_UNMATCHED)
                said.append(f"The map has no outline for {named} ({name}).")
    return said if mapped else ["The map names no place of this release: say which property does."]


def _map_section(title: str, columns: Columns, places: PlaceMap) -> Section | None:
    heading = _place_column(columns, places)
    if heading is None:
        return None
    value = _value_column(columns) or ""
    # One more than is shown tells whether some are left out.
    every_panel = _panels(columns, heading, value)
    panels = list(itertools.islice(every_panel, _MOST_PANELS + 1))
    shown = panels[:_MOST_PANELS]
    more = " More are in the file." if len(panels) > len(shown) else ""
    outlined, missing = places.match_labels(_distinct(columns, heading))
    lacking = ""
    if missing:
        lacking = f" The map has no outline for {list_some(missing, _SHOWN_UNMATCHED)}."
    if len(outlined) < len(places.outlines):
        lacking += " Places in grey are not in this release."
    what = "published estimate" if value == "estimate" else value
    caption = (
        f"On the left the {what}, on the right its standard error from the noise. Hatched"
        f" places are dominated by noise: do not read them by themselves. All maps of a column"
        f" have the same shades.{more}{lacking}"
    )
    return Section(
        heading=f"Map of the {title}",
        # A mean of 41 and one of 43 would have the same shade on a scale from 0.
        figure=place_map(places, shown, what, 0.0 if value in _FROM_ZERO else None),
        figure_label=f"Maps of the {title}: estimates and their standard errors",
        caption=caption,
    )


def _bars_section(title: str, columns: Columns) -> Section | None:
    """Return bars of what has one feature, the largest first."""
    one_feature = len(columns.labels) == 1
    if not one_feature or columns.rows < _LEAST_BARS:
        return None
    if "standard_error" not in columns.numbers:
        return None
    (heading,) = columns.labels
    if "estimate" not in columns.numbers:
        # Statistics of groups have a picture of their own.
        return None
    bars = np.count_nonzero(np.isfinite(columns.numbers["estimate"]))
    if not 2 <= bars <= _MOST_BARS:
        return None
    (panel,) = _panels(columns, heading, "estimate")
    capitalised = f"{title[:1].upper()}{title[1:]}"
    return Section(
        heading=f"{capitalised}, the largest first",
        figure=sorted_bars(panel, "published estimate"),
        caption=(
            "Estimates with two standard errors of the noise to each side; hatched where noise"
            " dominates."
        ),
    )


def _place_column(columns: Columns, places: PlaceMap) -> str | None:
    """Return the column whose labels the map names best; None where it names fewer than half of
    any.
    """
    best = None
    best_share = 0.5
    if _value_column(columns) is None:
        return None
    for heading in columns.labels:
        labels = _distinct(columns, heading)
        matched, _ = places.match_labels(labels)
        if len(labels) <= 1:
            continue
        share = len(matched) / len(labels)
        if share >= best_share:
            best = heading
            best_share = share
    return best


def _distinct(columns: Columns, heading: str) -> list[str]:
    labels = columns.labels[heading].column(columns.rows)
    return list(dict.fromkeys(labels.tolist()))


def _value_column(columns: Columns) -> str | None:
    """Return the column that the standard errors are of: it stands before them."""
    names = list(columns.numbers)
    if "standard_error" not in names[1:]:
        return None
    return names[names.index("standard_error") - 1]


def _panels(columns: Columns, heading: str, value: str) -> Iterator[PlaceValues]:
    """Yield the numbers of every place for each combination of the other labels."""
    labels = columns.labels[heading].column(columns.rows)
    # Each combination of the other labels is a panel.
    beside = []
    for name, part in columns.labels.items():
        if name != heading:
            beside.append(part.column(columns.rows))
    keys = [""] * columns.rows
    if beside:
        keys = [" · ".join(row) for row in zip(*beside, strict=True)]
    numbers = columns.numbers[value]
    errors = columns.numbers["standard_error"]
    seen = columns.numbers["count"] if value == "estimate" else np.abs(numbers)
    # large tables have no intervals: two standard errors stand for them
    half = 2 * errors
    if "estimate_high" in columns.numbers:
        half = columns.numbers["estimate_high"] - numbers
    for key in dict.fromkeys(keys):
        rows = [number for number, each in enumerate(keys) if each == key]
        values: dict[str, float] = {}
        deviations: dict[str, float] = {}
        faint = set()
        for row in rows:
            place = str(labels[row])
            values[place] = float(numbers[row])
            deviations[place] = float(errors[row])
            if seen[row] < half[row]:
                faint.add(place)
        yield PlaceValues(key, values, deviations, frozenset(faint))


_LISTED = 12  # pairs in the list, those of the largest error first
_NAMED = 8  # weak pairs that are named


def record_sections(release: ReleaseFiles) -> list[Section]:
    """Return the section on the errors of records; none where no microdata were asked for."""
    if release.plan.microdata is None:
        return []
    errors = estimate_errors(release)
    worst = sorted(errors.pairs.items(), key=lambda item: (-round(item[1], 4), item[0]))
    rows = [
        (one, other, _percent(error), "weak" if (one, other) in errors.weak else "")
        for (one, other), error in worst[:_LISTED]
    ]
    return [
        Section(
            heading="How good is it?",
            paragraphs=_explain(errors),
            columns=("column", "column", "error of the pair", "association"),
            rows=rows,
            names=2,
        )
    ]


def _explain(errors: RecordErrors) -> list[str]:
    """What errors of one, two and three columns are expected, and which pairs are weak."""
    pairs = list(errors.pairs.values())
    mean = sum(pairs) / max(len(pairs), 1)
    paragraphs = [
        "Errors of the records, estimated from the published numbers alone: the absolute errors of"
        " a table, added up, as a share of all records. 2% means that about one record in a"
        " hundred stands in a wrong cell."
    ]
    if errors.columns:
        worst = max(errors.columns, key=lambda name: errors.columns[name])
        paragraphs.append(
            f"One column: {_percent(sum(errors.columns.values()) / len(errors.columns))} on"
            f" average, at most {_percent(errors.columns[worst])} ({worst}). Exact totals have no"
            " error."
        )
    paragraphs.append(
        f"Two columns: {_percent(mean)} on average over {len(pairs)} measured pairs, on the bins"
        " that pairs are measured on. How people are spread inside a bin is not measured, so that"
        " single levels are farther off."
    )
    if errors.three_columns:
        paragraphs.append(
            f"Three columns: about {_percent(errors.three_columns)} on average, on these bins, if"
            " three columns have nothing in common beyond their pairs. If they do have, which is"
            " not measured, records are farther off."
        )
    if errors.weak:
        listed = list_some(errors.weak, _NAMED, "; ", " and ".join)
        paragraphs.append(
            f"Weak pairs, in which nothing is louder than the noise: {listed}. Records treat these"
            " columns as nearly independent of each other; a weak association may be lost."
        )
    else:
        paragraphs.append("No pair is weak: each has an association that is louder than the noise.")
    return paragraphs


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%"
