"""The page for R, run with Debian's R: through the command, and through reticulate."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.services
PAGE = (Path(__file__).parent.parent.parent / "docs" / "r.md").read_text(encoding="utf-8")


def test_the_page_runs_in_r(tmp_path: Path) -> None:
    blocks = re.findall(r"^```r\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    script = tmp_path / "page.R"
    script.write_text("\n".join(blocks), encoding="utf-8")
    rscript = shutil.which("Rscript")
    assert rscript is not None, "tests/services/run installs R"
    beside = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{beside}:{os.environ['PATH']}",
        "SEMIDP_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [rscript, "--vanilla", str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "release" / "report.html").exists()
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
