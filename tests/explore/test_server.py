"""``semidp explore`` as a process: one line on stdout, this machine only, an interrupt ends it."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from semidp.present.explore.explorer_page import _open_browser


def others() -> list[str]:
    """Addresses of this machine that are not 127.0.0.1."""
    names = {
        entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    }
    return sorted({*map(str, names), "127.0.0.2"} - {"127.0.0.1"})


@pytest.mark.long
def test_it_prints_its_address_and_listens_on_127_0_0_1_only(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("sex,region\nf,n\nm,s\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "semidp", "explore", "people.csv", "--no-browser"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]{32})/\n", line)
        assert found, line
        port, token = int(found[1]), found[2]
        with urllib.request.urlopen(line.strip(), timeout=30) as answer:
            assert b"See it before you spend it" in answer.read()
            assert answer.headers["server"] is None
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
        for address in others():
            with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
                socket.create_connection((address, port), timeout=2).close()
        assert token not in Path(f"/proc/{process.pid}/cmdline").read_text()
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.long
def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("sex\nf\nm\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["explore", "people.csv", "--no-browser", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(
            [sys.executable, "-m", "semidp", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "is taken" in done.stderr


def test_the_browser_is_led_there_by_a_file_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users see the words of a command, so that the address with its token is not one of
    them.
    """
    seen: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: seen.append(address) or True)
    with _open_browser("http://127.0.0.1:1/secret/"):
        assert "secret" not in seen[0]
        lead = Path(seen[0].removeprefix("file://"))
        assert "http://127.0.0.1:1/secret/" in lead.read_text()
        assert os.stat(lead).st_mode & 0o077 == 0
        assert os.stat(lead.parent).st_mode & 0o077 == 0
    assert not lead.exists()
