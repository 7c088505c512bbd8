"""Outlines of places from a GeoJSON or TopoJSON file, and which of them the labels of a table
name.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semidp.core.documents import from_json
from semidp.errors import InputError

MAP = "map.json"
"""What the outlines are called in the folder of a release."""

Ring = tuple[tuple[float, float], ...]

_LARGEST = 2**27  # bytes of a file of outlines
_DIGITS = 5  # of coordinates: about a metre in degrees
_MOST_PROPERTIES = 40


@dataclass(frozen=True)
class Outline:
    """One place: its properties as text, and its rings of coordinates."""

    properties: Mapping[str, str]
    rings: tuple[Ring, ...] = field(repr=False)


@dataclass(frozen=True)
class PlaceMap:
    """The outlines of places.

    Parameters
    ----------
    outlines
        The places.
    key
        The property that holds their names; the one that names most labels unless given.

    Examples
    --------
    >>> square = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
    >>> places = PlaceMap((Outline({"id": "7", "name": "North"}, (square,)),))
    >>> places.named(["north", "south"])
    ({'north': 0}, ['south'])
    """

    outlines: tuple[Outline, ...] = field(repr=False)
    key: str | None = None

    def named(self, labels: Sequence[str]) -> tuple[dict[str, int], list[str]]:
        """Return the outline of each label, and the labels that have none."""
        best: dict[str, int] = {}
        for key in self._keys:
            places = {
                _plain(outline.properties.get(key, "")): number
                for number, outline in enumerate(self.outlines)
            }
            places.pop("", None)
            matches = {label: places[_plain(label)] for label in labels if _plain(label) in places}
            if len(matches) > len(best):
                best = matches
        return best, [label for label in labels if label not in best]

    def names_most(self, labels: Sequence[str]) -> bool:
        """Whether it names at least half of several labels, so that they are taken for places."""
        return len(labels) > 1 and 2 * len(self.named(labels)[0]) >= len(labels)

    @property
    def _keys(self) -> list[str]:
        if self.key is not None:
            return [self.key]
        return list(dict.fromkeys(key for outline in self.outlines for key in outline.properties))

    def to_json(self) -> dict[str, Any]:
        """Return the outlines as GeoJSON."""
        features = []
        for outline in self.outlines:
            shape = {
                "type": "MultiPolygon",
                "coordinates": [[[list(point) for point in ring]] for ring in outline.rings],
            }
            features.append(
                {"type": "Feature", "properties": dict(outline.properties), "geometry": shape}
            )
        return {"type": "FeatureCollection", "features": features}

    @classmethod
    def from_json(cls, document: Any, key: str | None = None) -> "PlaceMap":
        """Read GeoJSON or TopoJSON; ValueError where it is neither.

        >>> arcs = [[[0, 0], [1, 0], [0, 1], [-1, -1]]]
        >>> shape = {"type": "Polygon", "arcs": [[0]], "properties": {"name": "a"}}
        >>> topology = {"type": "Topology", "arcs": arcs, "objects": {"x": shape}}
        >>> topology["transform"] = {"scale": [2, 2], "translate": [10, 0]}
        >>> PlaceMap.from_json(topology).outlines[0].rings
        (((10.0, 0.0), (12.0, 0.0), (12.0, 2.0), (10.0, 0.0)),)
        """
        try:
            outlines = list(
                _topology(document) if document["type"] == "Topology" else _features(document)
            )
        except (KeyError, TypeError, IndexError, AttributeError):
            raise ValueError("no outlines of places") from None
        if not outlines:
            raise ValueError("no outlines of places")
        return cls(tuple(outlines), key)

    @classmethod
    def read(cls, path: Path, key: str | None = None) -> "PlaceMap":
        """Read a file of outlines; refuse one that holds none, or none with the property."""
        try:
            if path.stat().st_size > _LARGEST:
                raise InputError(f"the map {path} is too large: simplify its outlines")
            places = cls.from_json(from_json(path.read_bytes()), key)
        except OSError:
            raise InputError(f"cannot read the map {path}") from None
        except (ValueError, RecursionError):
            raise InputError(
                f"the map {path} holds no outlines of places: give GeoJSON or TopoJSON"
            ) from None
        properties = dict.fromkeys(
            name for outline in places.outlines for name in outline.properties
        )
        if key is not None and key not in properties:
            raise InputError(
                f"no place of the map {path} has the property {key!r}; they have"
                f" {', '.join(properties)}"
            )
        return places


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _features(document: Mapping[str, Any]) -> Iterator[Outline]:
    """Yield the outlines of GeoJSON."""
    features = document["features"] if document["type"] == "FeatureCollection" else [document]
    for feature in features:
        shape = feature["geometry"]
        if shape is not None and shape["type"] in ("Polygon", "MultiPolygon"):
            polygons = (
                [shape["coordinates"]] if shape["type"] == "Polygon" else shape["coordinates"]
            )
            rings = [_ring(ring) for polygon in polygons for ring in polygon]
            yield Outline(_properties(feature), tuple(rings))


def _topology(document: Mapping[str, Any]) -> Iterator[Outline]:
    """Yield the outlines of TopoJSON, whose rings are put together from arcs that places share."""
    arcs = [_arc(arc, document.get("transform")) for arc in document["arcs"]]
    for each in document["objects"].values():
        for shape in each.get("geometries", [each]):
            if shape["type"] not in ("Polygon", "MultiPolygon"):
                continue
            polygons = [shape["arcs"]] if shape["type"] == "Polygon" else shape["arcs"]
            rings = [_joined(numbers, arcs) for polygon in polygons for numbers in polygon]
            yield Outline(_properties(shape), tuple(_ring(ring) for ring in rings))


def _arc(
    arc: Sequence[Sequence[float]], transform: Mapping[str, Any] | None
) -> list[tuple[float, float]]:
    """Return the points of an arc: with a transform they are steps from point to point."""
    if transform is None:
        return [(point[0], point[1]) for point in arc]
    (wide, high), (left, low) = transform["scale"], transform["translate"]
    points = []
    x, y = 0.0, 0.0
    for step in arc:
        x, y = x + step[0], y + step[1]
        points.append((x * wide + left, y * high + low))
    return points


def _joined(
    numbers: Sequence[int], arcs: Sequence[list[tuple[float, float]]]
) -> list[tuple[float, float]]:
    """Join arcs to a ring; a negative number is the arc from its end to its start."""
    points: list[tuple[float, float]] = []
    for number in numbers:
        arc = arcs[number] if number >= 0 else arcs[~number][::-1]
        points += arc[1:] if points else arc
    return points


def _ring(points: Sequence[Sequence[float]]) -> Ring:
    ring = []
    for point in points:
        x, y = float(point[0]), float(point[1])
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError("a coordinate is a number")
        ring.append((round(x, _DIGITS), round(y, _DIGITS)))
    return tuple(ring)


def _properties(feature: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that may be names: texts and numbers, and the id."""
    every = {
        **(feature.get("properties") or {}),
        **({"id": feature["id"]} if "id" in feature else {}),
    }
    named = {str(key): str(value) for key, value in every.items() if isinstance(value, (str, int))}
    return dict(list(named.items())[:_MOST_PROPERTIES])
