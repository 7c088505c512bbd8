"""Debian's R: the page for R, and the package `r/semidp` with its tests and its vignette."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.services
ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "r.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "r" / "semidp"
VIGNETTE = PACKAGE / "vignettes" / "semidp.Rmd"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the package, built and installed as R does it."""
    place = tmp_path_factory.mktemp("library")
    shutil.copytree(PACKAGE, place / "source")
    run_r(["CMD", "INSTALL", "-l", str(place), str(place / "source")], place, place, "R")
    return place


def run_r(words: list[str], folder: Path, library: Path | None, program: str = "Rscript") -> str:
    found = shutil.which(program)
    assert found is not None, "tests/services/run installs R"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SEMIDP_PYTHON": sys.executable,
        "R_LIBS": "" if library is None else str(library),
    }
    done = subprocess.run(
        [found, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def run_blocks(text: str, opening: str, least: int, folder: Path, library: Path | None) -> None:
    """Run the R blocks of a page as one script."""
    blocks = re.findall(rf"^```{opening}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == least
    script = folder / "page.R"
    script.write_text("\n".join(blocks), encoding="utf-8")
    run_r(["--vanilla", str(script)], folder, library)


def test_the_page_runs_in_r(tmp_path: Path, library: Path) -> None:
    run_blocks(PAGE, "r", 5, tmp_path, library)
    assert (tmp_path / "release" / "report.html").exists()
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


def test_the_functions_of_the_package(tmp_path: Path, library: Path) -> None:
    out = run_r(["--vanilla", str(PACKAGE / "tests" / "smoke.R")], tmp_path, library)
    assert "All checks passed" in out


def test_the_vignette_runs_and_draws(tmp_path: Path, library: Path) -> None:
    text = VIGNETTE.read_text(encoding="utf-8")
    run_blocks(text, r"\{r[^}]*\}", 4, tmp_path, library)
    assert (tmp_path / "Rplots.pdf").read_bytes().startswith(b"%PDF")


def test_every_function_of_the_package_is_documented() -> None:
    exported = re.search(r"export\(([^)]*)\)", (PACKAGE / "NAMESPACE").read_text())
    assert exported is not None
    assert {page.stem for page in (PACKAGE / "man").glob("*.Rd")} == set(exported[1].split(", "))
