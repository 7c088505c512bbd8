"""The report in a real Chromium: silent, alone, and readable at any width.

The pictures of the first report are left in build/, to be looked at.
"""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semidp import Budget, Feature, Margin, Plan, Release, run
from semidp.present.report.report_page import html, search_script
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.outcome import Outcome
from semidp.publish import TableRequest
from semidp.publish.statistics.outcomes.request import Statistic
from semidp.publish.statistics.sums import GroupRequest
from tests.services.conftest import Watched, assert_no_barriers

pytestmark = pytest.mark.services
DATA = files("semidp") / "data"
PICTURES = Path("build") / "report"
PHONE, DESK = 390, 1280
LARGEST_PICTURE = 750_000


def occupations() -> Release:
    plan = Plan(
        [TableRequest(["origin", "destination"], Budget.gdp(1))],
        [Margin("origin"), Margin("destination")],
        count="count",
    )
    return run(plan, DATA / "occupational_status.csv")


def four_features() -> Release:
    plan = Plan(
        [
            TableRequest(["class", "sex", "age", "survived"], Budget.zcdp("1/4")),
            TableRequest(["sex", "survived"], Budget.zcdp("1/4"), fit="none", name="women and men"),
        ],
        [Margin("class", "sex"), Margin("age"), Margin("survived")],
        count="count",
        adjacency=2,
    )
    return run(plan, DATA / "titanic.csv", SeededRandomness(1))


def hard_names() -> Release:
    random = np.random.default_rng(1)
    odd = [
        "$5 to $10 <b>and</b> more",
        "中文水平",
        "a" * 70,
        "--></svg><script>alert(1)</script>",
        "Ä & Ö / 'x' \"y\"",
    ]
    towns = [f"Gemeinde mit einem langen Namen {number}" for number in range(15)]
    people = {"Tätigkeit <i>heute</i>": random.choice(odd, 500), "ort": random.choice(towns, 500)}
    plan = Plan(
        [TableRequest(list(people), Budget.pure(1), fit="none")],
        [Margin("ort")],
        levels_from_data=True,
    )
    return run(plan, people)


def many_cells() -> Release:
    random = np.random.default_rng(2)
    people = {"row": random.integers(0, 120, 30_000), "column": random.integers(0, 90, 30_000)}
    return run(
        Plan([TableRequest(["row", "column"], Budget.zcdp(1))], [Margin("row"), Margin("column")]),
        people,
    )


def all_exact() -> Release:
    plan = Plan(
        [TableRequest(["hair"], Budget.pure(1))], [Margin("hair", "eye")], [Feature("hair", ["Black", "Brown"])],
        count="count", where="hair in ('Black', 'Brown')",
    )  # fmt: skip
    return run(plan, DATA / "hair_eye_color.csv")


def groups() -> Release:
    random = np.random.default_rng(3)
    schools = [f"Schule am langen Weg {number}" for number in range(30)]
    people = {
        "school": random.choice(schools, 900),
        "sex": random.choice(["f", "m"], 900),
        "score": random.random(900),
    }
    school, sex = Margin("school"), Margin("sex")
    score = Outcome("score", 0, 1, steps=1000)
    wanted = [GroupRequest(Statistic.mean, score, [school, sex], Budget.gdp(1))]
    return run(
        Plan([TableRequest(["school", "sex"], Budget.gdp(1)), *wanted], [school, sex]), people
    )


def product() -> Release:
    wanted = [["class", "sex", "survived"], ["class", "age"], ["sex", "age"]]
    tables = [TableRequest(features) for features in wanted]
    plan = Plan(
        tables, ["class", "sex"], levels_from_data=True, count="count", adjacency="exchange"
    )
    return run(plan.with_budget(Budget.gdp(1)), DATA / "titanic.csv")


REPORTS = [occupations, four_features, hard_names, many_cells, all_exact, groups, product]


@pytest.mark.parametrize("make", REPORTS)
def test_it_is_silent_alone_and_no_wider_than_the_screen(
    browser: Watched, tmp_path: Path, make: Callable[[], Release]
) -> None:
    page = tmp_path / "report.html"
    page.write_text(html(make()), encoding="utf-8")
    for width in (320, PHONE, 768, DESK):
        browser.open(page.as_uri(), width)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate("document.querySelector('main').scrollWidth") <= width
        too_wide = """[...document.querySelectorAll('main *')].filter(
            e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1).length"""
        assert browser.evaluate(too_wide) == 0
    assert browser.complaints == []
    assert [
        url for url in browser.requests if url != page.as_uri() and not url.startswith("data:")
    ] == []
    scripts = browser.evaluate("[...document.scripts].map(e => e.textContent)")
    searched = browser.evaluate("document.querySelectorAll('.find').length") > 0
    assert scripts == ([search_script()] if searched else [])


def test_what_it_says_can_be_found_without_seeing_it(browser: Watched, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html(four_features()), encoding="utf-8")
    browser.open(page.as_uri(), DESK)
    text = browser.evaluate("document.body.innerText")
    for expected in (
        "Not private",
        "lies below the worst case",
        "Published exactly",
        "What is not protected",
    ):
        assert expected in text
    unnamed = (
        "[...document.querySelectorAll('[role=img]')].filter(e =>"
        " !e.getAttribute('aria-label')).length"
    )
    assert browser.evaluate(unnamed) == 0
    assert browser.evaluate("document.querySelectorAll('.heat').length") == 2
    assert browser.evaluate("document.querySelectorAll('.heat tbody td[style]').length") == 32 + 4
    assert (
        browser.evaluate("document.querySelectorAll('.heat tbody tr:not(.sub) th[scope]').length")
        == 8 + 4 + 2 + 2
    )
    assert browser.evaluate("document.documentElement.lang") == "en"


def test_long_tables_are_searched(browser: Watched, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html(groups()), encoding="utf-8")
    browser.open(page.as_uri(), DESK)
    field = browser.page.locator(".find").first
    rows = browser.page.locator(".tall").first.locator("tbody tr")
    assert rows.count() == 30
    field.fill("weg 17")
    assert [row.is_visible() for row in rows.all()].count(True) == 1
    field.fill("")
    assert all(row.is_visible() for row in rows.all())
    assert browser.complaints == []


@pytest.mark.pictures
def test_pictures_of_it_are_small_and_it_prints(browser: Watched, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html(occupations()), encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for width in (PHONE, DESK):
        browser.open(page.as_uri(), width)
        picture = browser.screenshot()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < LARGEST_PICTURE
        (PICTURES / f"report-{width}.png").write_bytes(picture)
    printed = browser.page.pdf(prefer_css_page_size=True)
    assert printed.startswith(b"%PDF")
    assert 2 <= printed.count(b"/Type /Page\n") <= 5
    assert len(printed) < LARGEST_PICTURE
    (PICTURES / "report.pdf").write_bytes(printed)


def test_the_checks_would_notice(browser: Watched, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        "<script>console.error('x')</script><img src='http://127.0.0.1:9/x.png'><main"
        " style='width:900px'>x</main>"
    )
    browser.open(page.as_uri(), PHONE)
    assert browser.evaluate("document.documentElement.scrollWidth") > PHONE
    assert "console.error: x" in browser.complaints
    assert "http://127.0.0.1:9/x.png" in browser.requests


@pytest.mark.parametrize("made", [occupations, four_features, hard_names])
def test_no_barriers(chromium: Any, tmp_path: Path, made: Callable[[], Release]) -> None:
    made().save(tmp_path / "release")
    assert_no_barriers(chromium, (tmp_path / "release" / "report.html").as_uri())


def test_a_barrier_is_found(chromium: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<!doctype html><html lang=en><title>x</title><main><h1>x</h1><img src='data:,'></main>"
    )
    with pytest.raises(AssertionError, match="image-alt"):
        assert_no_barriers(chromium, page.as_uri())
