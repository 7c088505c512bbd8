"""Run every benchmark, print ratios against their targets, write them to a file, and fail where one
is missed.

``make bench`` calls this. Peers (OpenDP, PyDP, mbi) are installed into an environment of their own,
so that what they pin never meets what semidp pins; each benchmark times both sides in one run and
reports a ratio, never seconds. A target says whether the ratio may be at most (≤) or must be at
least (≥) what it names.
"""

import argparse
import importlib
import json
import math
import os
import platform
import subprocess
import sys
import traceback
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers"
PACKAGES = ("opendp", "python-dp", "numpy", "polars", "mbi")
# The others only print tables of the documentation, by hand.
SUITES = tuple(sorted(path.stem for path in HERE.glob("*.py") if "\ndef run(" in path.read_text()))


def peers_python() -> str:
    """Return the interpreter of the peers' environment; peers that are not there are installed,
    each run anew.
    """
    python = PEERS / "bin" / "python"
    if not python.exists():
        venv.create(PEERS, with_pip=True)
    there = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True
    )
    installed = {line.partition("==")[0].lower() for line in there.stdout.splitlines()}
    for package in PACKAGES:
        if package not in installed:
            print(f"installing {package} to compare with …", file=sys.stderr)
            done = subprocess.run(
                [python, "-m", "pip", "install", "--quiet", package], capture_output=True, text=True
            )
            if done.returncode:
                why = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
                print(
                    f"MISSING PEER: {package} does not install here ({why}): what needs it is"
                    " MISSED",
                    file=sys.stderr,
                )
    return str(python)


def measured(suite: str) -> list[dict[str, Any]]:
    """Return the rows of a suite; one that breaks is a target that is missed, and others go on."""
    try:
        return list(importlib.import_module(suite).run())
    except Exception:
        traceback.print_exc()
        return [{"name": "the suite broke", "ratio": math.nan, "target": "none", "ok": False}]


def main() -> int:
    """Run the suites that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"some of: {', '.join(SUITES)} (default: all)"
    )
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "benchmarks.json")
    options = parser.parse_args()
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(
            f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}"
        )
    suites = options.suites or SUITES
    beside = any("SEMIDP_PEERS_PYTHON" in (HERE / f"{suite}.py").read_text() for suite in suites)
    if beside and "SEMIDP_PEERS_PYTHON" not in os.environ:
        os.environ["SEMIDP_PEERS_PYTHON"] = peers_python()
    sys.path.insert(0, str(HERE))

    rows = []
    for suite in suites:
        for row in measured(suite):
            rows.append({"suite": suite, **row})
            verdict = "ok" if row["ok"] else "MISSED"
            print(
                f"{suite:12} {row['name']:64} {row['ratio']:>12.4g}  target {row['target']!s:>10} "
                f" {verdict}",
                flush=True,
            )
    machine = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine, "results": rows}, indent=2) + "\n")
    failed = [row for row in rows if not row["ok"]]
    print(f"{len(rows) - len(failed)} of {len(rows)} met their targets; written to {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
