"""The page of ``semidp explore`` in a real Chromium: from the data of the schools to the report of
their release.

Its pictures are left in build/, to be looked at; docs/ keeps them.
"""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from semidp import Plan, Release
from tests.services.conftest import Watched, assert_no_barriers

pytestmark = pytest.mark.services
SCHOOLS = files("semidp") / "data" / "california_schools.csv"
PICTURES = Path("build").absolute() / "explore"
PHONE, DESK = 390, 1280


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of a page that is served while the test runs, from a folder of its own."""
    (tmp_path / "california_schools.csv").write_bytes(SCHOOLS.read_bytes())
    words = [
        sys.executable,
        "-m",
        "semidp",
        "explore",
        "california_schools.csv",
        "--count",
        "count",
        "--no-browser",
    ]
    process = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


def picture(browser: Watched, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.png").write_bytes(browser.screenshot())


def choose(browser: Watched) -> None:
    """Nest district in county, ask for a table of meals, publish enrolment exactly."""
    page = browser.page
    page.fill("#nest", "county, district")
    page.locator("input[name=table-0][value=district]").check()
    page.locator("input[name=table-0][value=meals]").check()
    page.locator("input[name=total-0][value=district]").check()
    page.get_by_text("the levels of meals are not public").wait_for()
    page.fill("#levels-meals", "no, yes")
    page.keyboard.press("Tab")
    page.locator("td.error").wait_for()


def narrow(browser: Watched, width: int) -> None:
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    outside = """[...document.querySelectorAll('body *')].filter(
        e => !e.closest('.scroll, pre, .skip, .hide') && e.getBoundingClientRect().right > innerWidth + 1).length"""
    assert browser.evaluate(outside) == 0


def test_from_the_data_to_the_report(browser: Watched, address: str, tmp_path: Path) -> None:
    page = browser.page
    browser.open(address, DESK, 900)
    choose(browser)
    before = page.locator("td.error").inner_text(), page.locator("#guarantee").inner_text()
    page.locator("#step").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.locator("#amount", has_text="mu = 2").wait_for()
    page.locator("#guarantee", has_text="μ = 2 (Gaussian DP)").wait_for()
    after = page.locator("td.error").inner_text(), page.locator("#guarantee").inner_text()
    assert float(after[0]) < float(before[0])
    assert before[1] != after[1]
    # the numbers change, the keyboard stays
    assert browser.evaluate("document.activeElement.id") == "step"
    picture(browser, "explore-1280")
    page.get_by_role("button", name="Beside: half the budget").click()
    page.get_by_role("columnheader", name="half the budget").wait_for()
    page.locator("#costs-button").click()
    page.get_by_text("For the worst totals that there may be").wait_for()
    picture(browser, "explore-compared")
    with page.expect_download() as saved:
        page.get_by_role("button", name="The plan", exact=True).click()
    plan = Plan.from_toml(Path(saved.value.path()).read_text())
    assert page.locator("#plan-text").text_content() == plan.to_toml()
    page.fill("#typed", "mu = 1")
    page.get_by_role("button", name="Release", exact=True).click()
    page.get_by_text("that is not what was typed").wait_for()
    assert not (tmp_path / "release").exists()
    page.fill("#typed", "mu = 2")
    page.get_by_role("button", name="Release", exact=True).click()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Read its report").click(timeout=60_000)
    report = opened.value
    report.wait_for_load_state()
    assert "what is exact, what is protected" in report.title()
    assert Release.load(tmp_path / "release").plan == plan
    report.close()
    assert browser.complaints == []
    assert {url for url in browser.requests if not url.startswith((address, "data:"))} == set()
    saved_plan = tmp_path / "plan.toml"
    saved_plan.write_text(plan.to_toml())
    words = [
        "release",
        "california_schools.csv",
        "--plan",
        "plan.toml",
        "--out",
        "again",
        "--quiet",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "semidp", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    again = Release.load(tmp_path / "again")
    assert again.plan == plan
    assert (
        again.guarantee.tradeoff.to_json()
        == Release.load(tmp_path / "release").guarantee.tradeoff.to_json()
    )


def test_it_says_how_wrong_a_cell_is_and_where_noise_dominates(
    browser: Watched, address: str, tmp_path: Path
) -> None:
    """The page and the terminal say the same of the same plan, and less budget is worse."""
    page = browser.page
    browser.open(address, DESK, 900)
    choose(browser)
    for heading in ("standard error", "95% within", "noise dominates"):
        assert page.get_by_role("columnheader", name=heading).is_visible()
    before = forecast(browser)
    page.locator("#step").focus()
    page.keyboard.press("Home")
    page.wait_for_function(
        "before => document.querySelector('td.error').innerText != before", arg=f"{before[0]:g}"
    )
    shown = forecast(browser)
    assert all(less < more for less, more in zip(before, shown, strict=True))
    (tmp_path / "plan.toml").write_text(page.locator("#plan-text").text_content() or "")
    words = ["release", "california_schools.csv", "--plan", "plan.toml", "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-m", "semidp", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = re.search(
        r"standard error ([\d.]+) per cell, 95% within ±([\d.]+) "
        r"\(expected counts about [\d,.]+; noise dominates (\d+)% of the cells\)",
        done.stdout,
    )
    assert said is not None, done.stdout
    assert shown == pytest.approx([float(number) for number in said.groups()], rel=0.01)
    assert browser.complaints == []


def forecast(browser: Watched) -> list[float]:
    """The standard error of a cell, its range of 95%, and the percentage that noise dominates."""
    cells = browser.page.locator("tr", has=browser.page.locator("td.error")).locator("td")
    error, within, dominated = cells.all_inner_texts()[-3:]
    assert within.startswith("±")
    assert dominated.endswith("% of cells")
    return [float(text.strip("±% ofcels").replace(",", "")) for text in (error, within, dominated)]


@pytest.fixture
def pupils(tmp_path: Path) -> Iterator[str]:
    """A page on records with outcomes."""
    rows = [f"{'nsw'[k % 3]},{'fm'[k % 2]},{k * 7 % 101},{k % 5 == 0:d}" for k in range(300)]
    (tmp_path / "pupils.csv").write_text("\n".join(["school,sex,score,passed", *rows]) + "\n")
    words = [sys.executable, "-m", "semidp", "explore", "pupils.csv", "--no-browser"]
    process = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


def add(browser: Watched, statistic: str) -> None:
    """Add the card of a statistic."""
    browser.page.locator("#which").select_option(statistic)
    browser.page.get_by_role("button", name="Add a statistic").click()
    browser.page.locator(f"#{statistic}-0").wait_for()
    # Nobody is as fast as this test: the new form listens once it has settled.
    browser.page.locator(".htmx-added, .htmx-settling, .htmx-request").first.wait_for(
        state="detached"
    )


def test_means_medians_and_regressions_are_planned_and_priced(
    browser: Watched, pupils: str, tmp_path: Path
) -> None:
    page = browser.page
    browser.open(pupils, DESK, 900)
    add(browser, "mean")
    page.locator("#mean-0").select_option("score")
    page.locator("input[name=mean-0-group][value=school]").check()
    page.get_by_text("needs declared bounds").wait_for()
    page.fill("#mean-0-bounds", "0, 100")
    page.keyboard.press("Tab")
    error = page.locator("tr", has_text="mean-score").locator("td")
    error.wait_for()
    alone = error.inner_text()
    assert re.fullmatch(r"standard error of each mean [\d.]+", alone)
    for statistic in ("median", "regress"):
        add(browser, statistic)
        page.locator(f"#{statistic}-0").select_option("score")
        page.locator(
            f"input[name={statistic}-0-{'on' if statistic == 'regress' else 'group'}][value=sex]"
        ).check()
        page.fill(f"#{statistic}-0-bounds", "0, 100")
        page.keyboard.press("Tab")
    page.locator("tr", has_text="regression-score").wait_for()
    assert error.inner_text() != alone  # the budget is shared now, so that the mean has more noise
    shared = error.inner_text()
    page.locator("#step").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.locator("#guarantee", has_text="μ = 2").wait_for()
    assert error.inner_text() != shared
    narrow(browser, DESK)
    picture(browser, "explore-statistics-1280")
    page.locator("#costs-button").click()
    page.get_by_text("For the worst totals that there may be").wait_for()
    browser.page.set_viewport_size({"width": PHONE, "height": 800})
    narrow(browser, PHONE)
    picture(browser, "explore-statistics-390")
    page.get_by_role("button", name="Remove Median 1").click()
    page.locator("#median-0").wait_for(state="detached")
    page.fill("#typed", "mu = 2")
    page.get_by_role("button", name="Release", exact=True).click()
    page.get_by_role("link", name="Read its report").wait_for(timeout=60_000)
    release = Release.load(tmp_path / "release")
    assert [request.name for request in release.plan.requests] == ["mean-score", "regression-score"]
    assert browser.complaints == []


def test_it_fits_a_phone_and_the_dark(browser: Watched, address: str) -> None:
    browser.open(address, PHONE)
    narrow(browser, PHONE)
    choose(browser)
    browser.page.get_by_role("button", name="Beside: exchange adjacency").click()
    browser.page.get_by_role("columnheader", name="exchange adjacency").wait_for()
    narrow(browser, PHONE)
    picture(browser, "explore-390")
    browser.page.emulate_media(color_scheme="dark")
    browser.page.set_viewport_size({"width": DESK, "height": 900})
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, dark.removeprefix("rgb(").removesuffix(")").split(","))) < 150
    narrow(browser, DESK)
    picture(browser, "explore-dark")
    assert browser.complaints == []


def test_it_can_be_used_without_seeing_it_or_a_mouse(browser: Watched, address: str) -> None:
    browser.open(address, DESK)
    choose(browser)
    page = browser.page
    controls = "'input:not([type=hidden]), select, textarea, button:not([hidden])'"
    unnamed = f"""[...document.querySelectorAll({controls})].filter(
        e => !e.labels?.length && !e.getAttribute('aria-label') && !e.textContent.trim()).map(e => e.outerHTML)"""
    assert browser.evaluate(unnamed) == []
    assert (
        browser.evaluate(
            "[...document.querySelectorAll('section')].filter(e =>"
            " !e.hasAttribute('aria-labelledby')).length"
        )
        == 0
    )
    ids = "[...document.querySelectorAll('[id]')].map(e => e.id)"
    found = browser.evaluate(ids)
    assert len(found) == len(set(found))
    assert browser.evaluate("document.querySelectorAll('svg[role=img] > title').length") == 1
    page.locator("#adjacency-worst-case").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.locator("#guarantee", has_text="exchange: one person changes").wait_for()
    page.locator("#kind").focus()
    page.keyboard.press("ArrowDown")
    page.locator("#amount", has_text="rho = 1").wait_for()
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(browser.evaluate("document.activeElement.id"))
    assert {"step", "nest", "typed", "folder", "release-button", "costs-button"} <= seen
    assert browser.complaints == []


def test_no_barriers(chromium: Any, address: str) -> None:
    assert_no_barriers(chromium, address)


def test_on_a_phone_results_come_before_controls(browser: Watched, address: str) -> None:
    browser.open(address, PHONE)
    top = "document.querySelector('{}').getBoundingClientRect().top"
    assert browser.evaluate(f"{top.format('#results')} < {top.format('#plan-controls')}")
    browser.open(address, DESK)
    left = "document.querySelector('{}').getBoundingClientRect().left"
    assert browser.evaluate(f"{left.format('#results')} > {left.format('#plan-controls')}")
