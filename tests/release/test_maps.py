"""Results by place: outlines matched to labels, maps on the report, bars without outlines."""

import errno
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import semidp
from semidp.cli import run as command
from semidp.errors import InputError
from semidp.present.release import Release
from semidp.present.report.sections import (
    PlaceValues,
    list_unmatched_places,
    place_map,
    place_sections,
)
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema
from semidp.publish import TableRequest
from semidp.publish.plotting import estimates_plot, heatmap
from semidp.publish.presentation import Presentation
from semidp.publish.results.place_maps import MAP, Outline, PlaceMap

pytestmark = pytest.mark.pictures

PLACES = ("north", "south", "east", "west")
PEOPLE = {"region": [*PLACES] * 50, "ill": ["n", "y", "n", "n", "y"] * 40}


def geojson(names: dict[str, str]) -> dict[str, Any]:
    features = []
    for number, (name, code) in enumerate(names.items()):
        ring = [[number, 0], [number + 1, 0], [number + 1, 1], [number, 0]]
        shape = {"type": "Polygon", "coordinates": [ring]}
        features.append(
            {"type": "Feature", "properties": {"NAME": name, "code": code}, "geometry": shape}
        )
    return {"type": "FeatureCollection", "features": features}


def topojson() -> dict[str, Any]:
    """Two squares that share an arc."""
    arcs = [[[1, 0], [0, 1]], [[1, 1], [-1, 0], [0, -1], [1, 0]], [[1, 0], [1, 0], [0, 1], [-1, 0]]]
    west = {"type": "Polygon", "arcs": [[0, 1]], "properties": {"name": "west"}}
    east = {"type": "MultiPolygon", "arcs": [[[2, -1]]], "properties": {"name": "east"}}
    transform = {"scale": [1, 1], "translate": [0, 0]}
    objects = {"places": {"type": "GeometryCollection", "geometries": [west, east]}}
    return {"type": "Topology", "arcs": arcs, "transform": transform, "objects": objects}


@pytest.fixture
def map_file(tmp_path: Path) -> Path:
    path = tmp_path / "places.geojson"
    path.write_text(json.dumps(geojson({"North": "1", "SOUTH ": "2", "east": "3", "Lake": "9"})))
    return path


def released(places: PlaceMap | None, mu: float = 1) -> Release:
    return semidp.release(
        PEOPLE,
        semidp.table("region", "ill"),
        levels={"region": PLACES, "ill": ["n", "y"]},
        mu=mu,
        randomness=SeededRandomness(1),
        map=places,
    )


def test_arcs_are_joined_to_rings_that_share_a_side() -> None:
    west, east = PlaceMap.from_json(topojson()).outlines
    assert west.rings == (((1, 0), (1, 1), (0, 1), (0, 0), (1, 0)),)
    assert east.rings == (((1, 0), (2, 0), (2, 1), (1, 1), (1, 0)),)


def test_labels_find_their_places_by_the_best_property(map_file: Path) -> None:
    places = PlaceMap.read(map_file)
    assert places.match_labels(PLACES) == ({"north": 0, "south": 1, "east": 2}, ["west"])
    assert places.match_labels(["1", "2", "3"]) == ({"1": 0, "2": 1, "3": 2}, [])
    assert PlaceMap.read(map_file, "code").match_labels(PLACES)[0] == {}
    assert PlaceMap.from_json(places.to_json()).outlines == places.outlines


def test_the_report_has_maps_and_lists_what_the_map_lacks(map_file: Path, tmp_path: Path) -> None:
    release = released(PlaceMap.read(map_file), mu=0.05)
    (section,) = place_sections(release)
    assert "The map has no outline for west." in section.caption
    assert "Places in grey are not in this release." in section.caption
    hatched = [patch.get_hatch() for patch in section.figure.axes[0].patches]
    table = release.tables[0]
    faint = (table.counts < table.half_widths)[:3, 0]
    assert [hatch == "////" for hatch in hatched] == [*faint.tolist(), False]
    assert faint.any()
    assert list_unmatched_places(release) == ["The map has no outline for west (table)."]
    # A notebook draws the same.
    shown = release._repr_html_()
    assert shown.count("<svg") == 1
    assert "Map of the counts by region and ill" in shown
    assert "<svg" not in released(None)._repr_html_()
    release.save(tmp_path / "out")
    assert (tmp_path / "out" / MAP).exists()
    again = Release.load(tmp_path / "out")
    assert again.presentation == release.presentation
    assert command(["show", str(tmp_path / "out"), "--quiet"]) == 0


def test_a_mapping_may_name_the_file_of_a_map(map_file: Path) -> None:
    for name in (map_file, str(map_file)):
        assert Presentation.from_value({"places": name}).places == PlaceMap.read(map_file)
    with pytest.raises(InputError, match="cannot read the map"):
        Presentation.from_value({"places": "nowhere.geojson"})


def test_places_are_named_where_their_names_have_room() -> None:
    """Of two places that are as wide as the map and one that is a hundredth of it."""
    outlines = []
    for number, (name, right) in enumerate((("north", 10.0), ("south", 10.0), ("isle", 0.1))):
        low, high = float(number), number + 0.9
        ring = ((0.0, low), (right, low), (right, high), (0.0, high), (0.0, low))
        outlines.append(Outline({"name": name}, (ring,)))
    numbers = {"north": 7.0, "south": 5.0, "isle": 3.0}
    figure = place_map(
        PlaceMap(tuple(outlines)), [PlaceValues("", numbers, numbers, frozenset())], "count"
    )
    for axes in figure.axes[:2]:
        assert [text.get_text() for text in axes.texts] == ["north", "south"]


def test_without_a_map_one_feature_is_bars_the_largest_first() -> None:
    release = semidp.release(PEOPLE, semidp.table("region"), levels={"region": PLACES}, mu=1)
    (section,) = place_sections(release)
    shown = [text.get_text() for text in section.figure.axes[0].get_yticklabels()]
    estimates = dict(zip(PLACES, release.tables[0].estimate.tolist(), strict=True))
    assert shown == sorted(PLACES, key=lambda place: -estimates[place])
    assert list(place_sections(released(None))) == []


@pytest.mark.long
def test_the_commands_take_a_map(
    map_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "people.csv"
    file.write_text(
        "region,ill\n" + "".join(f"{a},{b}\n" for a, b in zip(*PEOPLE.values(), strict=True))
    )
    words = [
        "release",
        str(file),
        "--table",
        "region,ill",
        "--exact",
        "region",
        "--levels",
        "ill=n,y",
        "--mu",
        "1",
    ]
    assert (
        command(
            [
                *words,
                "--out",
                str(tmp_path / "mapped"),
                "--set",
                f"map={map_file}",
                "--set",
                "map_key=NAME",
            ]
        )
        == 0
    )
    assert "The map has no outline for west (table)." in capsys.readouterr().err
    assert "<h2>Map of the " in (tmp_path / "mapped" / "report.html").read_text()
    assert command([*words, "--out", str(tmp_path / "plain"), "--quiet"]) == 0
    page = tmp_path / "page.html"
    assert (
        command(
            [
                "show",
                str(tmp_path / "plain"),
                "--map",
                str(map_file),
                "--page",
                str(page),
                "--quiet",
            ]
        )
        == 0
    )
    assert "<h2>Map of the " in page.read_text()
    assert not (tmp_path / "plain" / MAP).exists()

    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    half = tmp_path / "half.html"
    again = ["show", str(tmp_path / "plain"), "--map", str(map_file), "--page", str(half)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        assert command([*again, "--quiet"]) == 2
    assert "no space left" in capsys.readouterr().err
    assert not [path for path in tmp_path.iterdir() if "half.html" in path.name]
    capsys.readouterr()
    for wrong, reason in (
        (
            ["show", str(tmp_path / "plain"), "--map", str(map_file)],
            "--map FILE and --page HTML go together",
        ),
        ([*words, "--out", "x", "--set", "map_key=NAME"], "works only with --set map="),
        ([*words, "--out", "x", "--set", f"map={file}"], "holds no outlines of places"),
        (
            [*words, "--out", "x", "--set", f"map={map_file}", "--set", "map_key=nom"],
            "has the property 'nom'; they have NAME",
        ),
    ):
        assert command(wrong) == 2
        assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", ["[]", "{}", '{"type": "FeatureCollection", "features": []}', "no json", '{"type": 3}']
)
def test_files_without_outlines_are_refused(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "map.json").write_text(wrong)
    with pytest.raises(InputError, match="holds no outlines of places"):
        PlaceMap.read(tmp_path / "map.json")


def test_the_axes_of_a_heatmap_are_named() -> None:
    features = [
        Feature(name, map(str, range(size)))
        for name, size in (("a", 6), ("b", 7), ("c", 5), ("d", 8))
    ]
    schema = Schema(features)
    import numpy as np

    figure = heatmap(schema, np.arange(schema.size).reshape(schema.shape))
    assert figure is not None
    assert (figure.axes[0].get_ylabel(), figure.axes[0].get_xlabel()) == ("a · b", "c · d")


def test_shades_are_those_of_the_places_on_the_map_and_the_same_on_every_panel() -> None:
    """A group off the map, or one of mere noise, does not leave all others the same shade."""
    square = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0))
    outlines = [Outline({"name": name}, (square,)) for name in ("a", "b", "c")]
    values = {"a": 10.0, "b": 20.0, "c": 900.0, "elsewhere": 5000.0}
    errors = {"a": 1.0, "b": 2.0, "c": 800.0, "elsewhere": 9000.0}
    first = PlaceValues("one", values, errors, frozenset("c"))
    second = PlaceValues("two", {"a": 30.0, "b": -4.0}, {"a": 1.0, "b": 1.0}, frozenset())
    figure = place_map(PlaceMap(tuple(outlines)), [first, second], "count")
    bars = [axes for axes in figure.axes if axes.get_ylabel()]
    assert [axes.get_ylabel() for axes in bars] == ["count", "standard error"] * 2
    assert [axes.get_ylim() for axes in bars] == [(-4.0, 30.0), (0.0, 2.0)] * 2


def test_ticks_keep_thousands_apart_and_do_not_touch() -> None:
    figure = estimates_plot(["a", "b"], [-50_000.0, 36_000.0], [140_000.0, 3_000.0], "mean")
    axes = figure.axes[0]
    figure.canvas.draw()
    labels = [label for label in axes.get_xticklabels() if label.get_text()]
    texts = [label.get_text() for label in labels]
    assert "150,000" in texts
    boxes = [label.get_window_extent() for label in labels]
    assert len(boxes) > 2
    for left, right in pairwise(boxes):
        assert left.x1 < right.x0, texts


def test_a_map_of_other_places_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    """A warning after the release would come too late: the budget is spent."""
    elsewhere = PlaceMap.from_json(geojson({"Mars": "1", "Venus": "2"}))
    ledger = semidp.Ledger.create(tmp_path / "ledger.json", semidp.Budget.gdp(5))
    for out in (None, tmp_path / "out"):
        with pytest.raises(InputError, match="the map names no place of this release"):
            semidp.release(
                PEOPLE,
                semidp.table("region", "ill"),
                levels={"region": PLACES, "ill": ["n", "y"]},
                mu=1,
                ledger=ledger,
                out=out,
                map=elsewhere,
            )
    assert not ledger.own_charges
    assert not (tmp_path / "out").exists()


def test_show_refuses_a_page_before_it_prints(
    map_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    released(None).save(tmp_path / "plain")
    mars = tmp_path / "mars.geojson"
    mars.write_text(json.dumps(geojson({"Mars": "1", "Venus": "2"})))
    page = str(tmp_path / "page.html")
    for wrong, reason in (
        (["--map", str(map_file)], "go together"),
        (["--map", str(map_file), "--page", str(tmp_path / "plain" / "x.html")], "outside"),
        (["--map", str(mars), "--page", page], "names no place"),
    ):
        assert command(["show", str(tmp_path / "plain"), *wrong]) == 2
        out, err = capsys.readouterr()
        assert reason in err
        assert not out
    assert not Path(page).exists()


@pytest.mark.parametrize("wards", [60, 61])
def test_bars_of_many_places_leave_no_empty_heading(wards: int) -> None:
    feature = Feature("ward", [f"w{number}" for number in range(wards)])
    plan = semidp.Plan([TableRequest(["ward"], semidp.Budget.zcdp(1))], features=[feature])
    page = semidp.run(plan, {"ward": ["w1", "w2"] * 50}).report_html()
    assert ("Counts by ward, the largest first" in page) == (wards == 60)
