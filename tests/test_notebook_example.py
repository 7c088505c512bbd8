"""docs/notebook.ipynb, executed: its cells run one after another, and the outputs that it keeps are
those of a run.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).parent.parent / "docs" / "notebook.ipynb"
CELLS = [
    cell
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    if cell["cell_type"] == "code"
]

RUN = """
import ast, json, sys
names = {}
for source in json.load(sys.stdin):
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    page = value._repr_html_() if hasattr(value, "_repr_html_") else None
    print(json.dumps([type(value).__name__, page, repr(value)[:300]]))
"""

# Results that hold no drawn number: what the notebook keeps of them is what a run shows, word for word.
WITHOUT_NOISE = ("Plan", "Guarantee", "SemiAdjacency", "Dataspace")


def words(page: str) -> str:
    """The page without its digits: a release is drawn anew, so its numbers differ every time."""
    return re.sub(r"[0-9][0-9.,]*", "0", page)


def test_its_cells_run_and_show_what_it_keeps(tmp_path: Path) -> None:
    sources = ["".join(cell["source"]) for cell in CELLS]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN],
        input=json.dumps(sources),
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(shown) == len(CELLS) >= 7
    for cell, (kind, page, text) in zip(CELLS, shown, strict=True):
        kept = [
            output
            for output in cell["outputs"]
            if output["output_type"] in ("execute_result", "display_data")
        ]
        assert len(kept) == 1, cell["source"]
        data = kept[0]["data"]
        if kind == "NoneType":
            assert "image/png" in data
            continue
        assert ("text/html" in data) == (page is not None), kind
        if kind in (*WITHOUT_NOISE, "Release"):
            assert "".join(data["text/plain"]) == text
        if page is None:
            continue
        kept_page = "".join(data["text/html"])
        if kind in WITHOUT_NOISE:
            assert kept_page == page
        if kind == "Release":
            assert words(kept_page) == words(page)


def test_it_names_no_place_of_the_machine_that_ran_it() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not [
        word for word in ("/home/", "/tmp/", "/root/", "site-packages", ".venv") if word in text
    ]
