"""A real Chromium, driven by Playwright: what a page asks for and complains about is kept."""

import os
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from attrs import define, field

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
    ),
)


@define(slots=False)  # Playwright sets attributes on what handles its events
class Watched:
    """A page, its requests, and whatever it logged or threw."""

    page: Any
    requests: list[str] = field(factory=list)
    complaints: list[str] = field(factory=list)

    def watch(self, page: Any) -> None:
        """Keep what this page asks for and complains about too."""
        page.on("request", lambda request: self.requests.append(request.url))
        page.on(
            "console",
            lambda message: self.complaints.append(f"console.{message.type}: {message.text}"),
        )
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))

    def open(self, address: str, width: int, height: int = 800) -> None:
        """Load a page in a window of this size and wait until everything in it has loaded."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.goto(address)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        return self.page.evaluate(expression)

    def screenshot(self) -> bytes:
        """Return the whole page as PNG; nothing is injected into it for that."""
        found: bytes = self.page.screenshot(full_page=True, caret="initial")
        return found


def assert_no_barriers(chromium: Any, address: str) -> None:
    """Run axe-core in a page at both widths and in both color schemes: it finds no violation."""
    script = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            # The page allows no script but its own: the policy is lifted for this one.
            context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
            page = context.new_page()
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(address)
            page.evaluate(script)
            found = page.evaluate("axe.run()")
            context.close()
            barriers = [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]]
            assert barriers == [], (scheme, width)
            assert len(found["passes"]) > 20  # rules that looked at something


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # here, since `make test` has no browser

    binary = os.environ.get("CHROMIUM")
    if not binary:
        pytest.fail("no Chromium was found for this test: run tests/services/run")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=binary, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Watched]:
    context = chromium.new_context()
    watched = Watched(context.new_page())
    context.on("page", watched.watch)
    watched.watch(watched.page)
    yield watched
    context.close()
