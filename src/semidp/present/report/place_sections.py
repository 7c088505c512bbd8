"""The sections of a report that show results by place: as maps where outlines were given, else as
sorted bars.
"""

import itertools
from collections.abc import Iterator
from html import escape

import numpy as np

from semidp.publish.plots.maps import PlaceValues, place_map, sorted_bars
from semidp.publish.plots.style import svg
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.results.cells import Columns
from semidp.publish.results.place_maps import PlaceMap
from semidp.publish.results.sections import Section
from semidp.publish.statistics.protocol.results import Published

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
                first = ", ".join(missing[:_SHOWN_UNMATCHED])
                unshown = len(missing) - _SHOWN_UNMATCHED
                left = f" and {unshown:,} more" if unshown > 0 else ""
                said.append(f"The map has no outline for {first}{left} ({name}).")
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
        first = ", ".join(missing[:_SHOWN_UNMATCHED])
        lacking = f" The map has no outline for {first}."
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
        figure=place_map(places, shown, what),
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
