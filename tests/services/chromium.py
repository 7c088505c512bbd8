"""A real Chromium, driven over a pair of pipes with the DevTools protocol: no driver, no port, no package.

Every message is one JSON object that ends with a zero byte. Only what the tests of the report need is here.
"""

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
PATIENCE = 60  # seconds for one answer


class Chromium:
    """A browser with one page; what the page asked for and complained about is kept."""

    def __init__(self, binary: str, profile: Path) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False
        self._number = 0
        self._rest = b""
        ours, theirs = os.pipe(), os.pipe()
        to_browser, self._answers = ours[1], theirs[0]
        self._orders = to_browser
        # Chromium reads orders from 3 and writes answers to 4; move ours out of the way of those numbers.
        reads, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (ours[0], theirs[1]))
        words = [binary, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        shell = f'exec "$@" 3<&{reads} 4>&{writes}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "chromium", *words],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (ours[0], theirs[1], reads, writes):
            os.close(fd)
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send an order and return its answer; events that come before it are kept."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters}
        if hasattr(self, "_session"):
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return dict(message["result"])
            self._note(message)

    def open(self, address: str, width: int, height: int = 800, *, phone: bool = False) -> None:
        """Load a page in a window of this size and wait until everything in it has loaded."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self._loaded = False
        answer = self.ask("Page.navigate", url=address)
        assert "errorText" not in answer, answer
        while not self._loaded:
            self._note(self._read())

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self) -> bytes:
        """Return the whole page as PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """Return the page as it prints."""
        answer = self.ask("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        return base64.b64decode(answer["data"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._orders)
        os.close(self._answers)
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            part = os.read(self._answers, 1 << 20)
            assert part, "Chromium has gone"
            self._rest += part
        whole, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(whole))

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(f"{parameters['entry']['level']}: {parameters['entry']['text']}")
            case "Runtime.consoleAPICalled":
                self.complaints.append(f"console.{parameters['type']}")
            case "Runtime.exceptionThrown":
                self.complaints.append("exception")
