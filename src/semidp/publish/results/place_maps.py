"""Outlines of places from a GeoJSON or TopoJSON file, matched with the labels of a
table.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from semidp.errors import InputError
from semidp.promise.documents import from_json

MAP = "map.json"
"""The file name of the outlines in the folder of a release."""

Ring = tuple[tuple[float, float], ...]

_LARGEST = 2**27  # bytes of a file of outlines
_DIGITS = 5  # of coordinates: about a metre in degrees
_MOST_PROPERTIES = 40


@frozen
class Outline:
    """One place: its properties as text, and its rings of coordinates."""

    properties: Mapping[str, str]
    rings: tuple[Ring, ...] = field(repr=False)


@frozen
class PlaceMap:
    """The outlines of places.

    Parameters
    ----------
    outlines
        The places.
    key
        The property that holds their names (default: the one that names most labels).

    Examples
    --------
    >>> square = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
    >>> places = PlaceMap((Outline({"id": "7", "name": "North"}, (square,)),))
    >>> places.match_labels(["north", "south"])
    ({'north': 0}, ['south'])
    """

    outlines: tuple[Outline, ...] = field(repr=False)
    key: str | None = None

    def match_labels(self, labels: Sequence[str]) -> tuple[dict[str, int], list[str]]:
        """Return the outline of each label, and the labels that have none."""
        best: dict[str, int] = {}
        for key in self._keys:
            places: dict[str, int] = {}
            for number, outline in enumerate(self.outlines):
                places[_plain(outline.properties.get(key, ""))] = number
            places.pop("", None)
            matches: dict[str, int] = {}
            for label in labels:
                plain_label = _plain(label)
                if plain_label in places:
                    matches[label] = places[plain_label]
            if len(matches) > len(best):
                best = matches
        return best, [label for label in labels if label not in best]

    def names_most(self, labels: Sequence[str]) -> bool:
        """Whether it names at least half of several labels, so they are taken for places."""
        if len(labels) <= 1:
            return False
        outline_of_label, _ = self.match_labels(labels)
        return 2 * len(outline_of_label) >= len(labels)

    @property
    def _keys(self) -> list[str]:
        if self.key is not None:
            return [self.key]
        return list(self._property_names())

    def _property_names(self) -> dict[str, None]:
        """Return the properties that any place has, each once, in their order."""
        properties: dict[str, None] = {}
        for outline in self.outlines:
            properties |= dict.fromkeys(outline.properties)
        return properties

    def to_json(self) -> dict[str, Any]:
        """Return the outlines as GeoJSON."""
        features = []
        for outline in self.outlines:
            # every ring is a polygon of its own: which is a hole in which is not kept
            polygons = []
            for ring in outline.rings:
                polygons.append([[list(point) for point in ring]])
            shape = {"type": "MultiPolygon", "coordinates": polygons}
            properties = dict(outline.properties)
            features.append({"type": "Feature", "properties": properties, "geometry": shape})
        return {"type": "FeatureCollection", "features": features}

    @classmethod
    def from_json(cls, document: Any, key: str | None = None) -> "PlaceMap":
        """Read GeoJSON or TopoJSON; ValueError if it is neither.

        >>> arcs = [[[0, 0], [1, 0], [0, 1], [-1, -1]]]
        >>> shape = {"type": "Polygon", "arcs": [[0]], "properties": {"name": "a"}}
        >>> topology = {"type": "Topology", "arcs": arcs, "objects": {"x": shape}}
        >>> topology["transform"] = {"scale": [2, 2], "translate": [10, 0]}
        >>> PlaceMap.from_json(topology).outlines[0].rings
        (((10.0, 0.0), (12.0, 0.0), (12.0, 2.0), (10.0, 0.0)),)
        """
        try:
            is_topology = document["type"] == "Topology"
            outlines = list(_topology(document) if is_topology else _features(document))
        except (KeyError, TypeError, IndexError, AttributeError):
            raise ValueError("no outlines of places") from None
        if not outlines:
            raise ValueError("no outlines of places")
        return cls(tuple(outlines), key)

    @classmethod
    def read(cls, path: Path, key: str | None = None) -> "PlaceMap":
        """Read a file of outlines; refuse one without outlines, or without the property."""
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
        properties = places._property_names()
        if key is not None and key not in properties:
            names = ", ".join(properties)
            raise InputError(
                f"no place of the map {path} has the property {key!r}; they have {names}"
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
            rings = [_ring(ring) for ring in _rings(shape, "coordinates")]
            yield Outline(_properties(feature), tuple(rings))


def _rings(shape: Mapping[str, Any], key: str) -> list[Any]:
    """Return the rings of a polygon or of several, which lie at this key."""
    polygons = [shape[key]] if shape["type"] == "Polygon" else shape[key]
    rings: list[Any] = []
    for polygon in polygons:
        rings += polygon
    return rings


def _topology(document: Mapping[str, Any]) -> Iterator[Outline]:
    """Yield the outlines of TopoJSON, whose rings are put together from arcs that places share."""
    arcs = [_arc(arc, document.get("transform")) for arc in document["arcs"]]
    for each in document["objects"].values():
        for shape in each.get("geometries", [each]):
            if shape["type"] not in ("Polygon", "MultiPolygon"):
                continue
            rings = [_join_arcs(numbers, arcs) for numbers in _rings(shape, "arcs")]
            yield Outline(_properties(shape), tuple(map(_ring, rings)))


def _arc(
    arc: Sequence[Sequence[float]], transform: Mapping[str, Any] | None
) -> list[tuple[float, float]]:
    """Return the points of an arc: with a transform they are steps from point to point."""
    if transform is None:
        return [(point[0], point[1]) for point in arc]
    wide, high = transform["scale"]
    left, low = transform["translate"]
    points = []
    x, y = 0.0, 0.0
    for step in arc:
        x += step[0]
        y += step[1]
        points.append((x * wide + left, y * high + low))
    return points


def _join_arcs(
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
        x = float(point[0])
        y = float(point[1])
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError("a coordinate is a number")
        ring.append((round(x, _DIGITS), round(y, _DIGITS)))
    return tuple(ring)


def _properties(feature: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that may be names: texts and numbers, and the id."""
    every = {**(feature.get("properties") or {})}
    if "id" in feature:
        every["id"] = feature["id"]
    named: dict[str, str] = {}
    for key, value in every.items():
        if isinstance(value, (str, int)):
            named[str(key)] = str(value)
    first_properties = list(named.items())[:_MOST_PROPERTIES]
    return dict(first_properties)
