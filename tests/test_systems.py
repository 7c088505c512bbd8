"""Other operating systems: the same jobs without what only POSIX has, and one module that asks."""

import ast
import subprocess
import sys
from pathlib import Path

import semidp

PACKAGE = Path(semidp.__file__).parent

# Python runs this first in every process, workers included. `filelock` stays as it is: it has a
# lock of its own for Windows.
WITHOUT_POSIX = """
import os, signal, sys
import filelock
sys.modules["fcntl"] = None
for name in ("fork", "register_at_fork", "chown", "O_DIRECTORY"):
    delattr(os, name)
for name in ("pthread_sigmask", "SIGHUP"):
    delattr(signal, name)
open(os.environ["SEMIDP_STARTED"], "a").write("started\\n")
"""

PEOPLE = "sex,state,county\n" + "".join(
    f"{'fm'[i % 2]},{'ns'[i % 4 // 2]},{'ns'[i % 4 // 2]}{i % 3}\n" for i in range(60)
)


def test_releases_parts_and_ledgers_work_without_posix(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT_POSIX)
    (tmp_path / "people.csv").write_text(PEOPLE)
    started = tmp_path / "started"

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "semidp", *words],
            cwd=tmp_path,
            env={
                "PYTHONPATH": f"{tmp_path / 'site'}:{PACKAGE.parent}",
                "SEMIDP_STARTED": str(started),
                "PATH": "",
                "HOME": str(tmp_path),
            },
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    table = ("people.csv", "--nest", "state,county", "--table", "county,sex", "--exact", "county")
    table += ("--levels", "sex=f,m")
    parts = ("--exact", "sex,state", "--partition", "state", "--jobs", "2")
    run("ledger", "privacy.json", "--mu", "3")
    run("release", *table, "--mu", "1", "--ledger", "privacy.json", "--out", "whole")
    run("release", *table, "--mu", "1", "--ledger", "privacy.json", *parts, "--out", "parts")
    assert run("ledger", "privacy.json", "--check", "whole", "parts").count("agrees") == 2
    assert started.read_text().count("started") >= 6  # four commands, and two workers
    files = list((tmp_path / "whole").rglob("*.csv"))
    assert files
    assert not [path for path in files if b"\r" in path.read_bytes()]


ASKS_THE_SYSTEM = {
    ("os", "register_at_fork"),
    ("os", "fork"),
    ("os", "chown"),
    ("os", "O_NONBLOCK"),
    ("os", "O_DIRECTORY"),
    ("os", "geteuid"),
    ("signal", "pthread_sigmask"),
    ("signal", "SIGHUP"),
    ("signal", "SIGKILL"),
    ("sys", "platform"),
}


def system_names(path: Path) -> set[tuple[str, str]]:
    """What a module uses that not every system has, directly or through getattr and hasattr."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add((node.value.id, node.attr))
        if isinstance(node, ast.Call) and len(node.args) > 1:
            module, name = node.args[:2]
            if isinstance(module, ast.Name) and isinstance(name, ast.Constant):
                found.add((module.id, str(name.value)))
        if isinstance(node, ast.Import):
            found |= {("import", name.name) for name in node.names if name.name == "fcntl"}
    return found & (ASKS_THE_SYSTEM | {("import", "fcntl")})


def test_one_module_knows_what_differs() -> None:
    asking = {
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if system_names(path)
    }
    assert asking == {"promise/system.py"}


def test_every_text_file_names_its_encoding_and_line_ends() -> None:
    """Windows would otherwise write its own of both."""
    checked = 0
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            keywords = {keyword.arg for keyword in node.keywords}
            if node.func.attr == "write_text":
                assert keywords >= {"encoding", "newline"}, f"{path}:{node.lineno}"
                checked += 1
            if node.func.attr == "read_text" and not node.args:
                assert "encoding" in keywords, f"{path}:{node.lineno}"
                checked += 1
    assert checked >= 8
