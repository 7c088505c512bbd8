"""Checks the machine-checked proofs: installs Coq, compiles every file, runs Coq's second checker
over all of them, and compares the theorems and their axioms (none) with theorems.txt.

`make proofs` runs it. Python standard library only.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "proofs"
LIST = HERE / "theorems.txt"
PACKAGES = (
    "coq",
    "libcoq-mathcomp-ssreflect",
    "libcoq-mathcomp-fingroup",
    "libcoq-mathcomp-algebra",
    "libcoq-mathcomp-zify",
)
# Words that leave a gap in a proof, add an axiom, or switch a check of Coq off.
FORBIDDEN = re.compile(
    r"\b(Admitted|admit|give_up|Axioms?|Parameters?|Conjectures?|Declare Module|bypass_check"
    r"|Guard Checking|Positivity Checking|Universe Checking|type-in-type|Add LoadPath|Declare ML)\b"
)
CLOSED = "Closed under the global context"
OPTIONS = ("-q", "-w", "-notation-overridden,-ambiguous-paths", "-R", ".", "Semidp")


def list_theorems(folder: Path) -> list[str]:
    """One line per theorem: its name, its file, and the comment above it.

    Raises ValueError if a theorem has no comment directly above it, or if two have one name.
    """
    lines = []
    for path in sorted(folder.glob("*.v")):
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"(?:\(\*((?:(?!\*\)).)*)\*\)\n)?Theorem (\w+)", text, re.DOTALL):
            comment, name = found.groups()
            if comment is None:
                raise ValueError(f"{path.name}: say in words above {name} what it states")
            lines.append(f"{name} | {path.name} | {' '.join(comment.split())}")
    names = [line.split(" | ")[0] for line in lines]
    if len(set(names)) < len(names):
        raise ValueError("two theorems have the same name")
    return lines


def find_gaps(folder: Path) -> list[str]:
    """The places with a word that would leave something unproved."""
    return [
        f"{path.name}, line {number}: {found[0]}"
        for path in sorted(folder.glob("*.v"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := FORBIDDEN.search(line))
    ]


def run(*command: str) -> str:
    """Run a command in the build folder and return what it says; stop if it fails."""
    done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"proofs: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def install() -> None:
    """Install the Debian packages that are missing."""
    known = subprocess.run(
        ("dpkg-query", "-W", "-f", "${Package} ${Status}\n", *PACKAGES),
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    missing = [name for name in PACKAGES if f"{name} install ok installed" not in known]
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"proofs: install {' '.join(missing)} first, or run this as root on Debian")
    print(f"proofs: installing {' '.join(missing)}", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    wait = ("-qq", "-o", "DPkg::Lock::Timeout=300")
    for command in (
        ("apt-get", "update", *wait),
        ("apt-get", "install", "-y", "--no-install-recommends", *wait, *missing),
    ):
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    started = time.monotonic()
    if gaps := find_gaps(HERE):
        sys.exit("proofs: not everything is proved:\n" + "\n".join(gaps))
    try:
        theorems = list_theorems(HERE)
    except ValueError as problem:
        sys.exit(f"proofs: {problem}")
    install()
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    for path in HERE.glob("*.v"):
        shutil.copy(path, BUILD)
    files = run("coqdep", "-R", ".", "Semidp", "-sort", *(p.name for p in HERE.glob("*.v"))).split()
    for name in files:
        before = time.monotonic()
        run("coqc", *OPTIONS, name)
        print(f"proofs: {Path(name).stem} checked ({time.monotonic() - before:.0f} s)", flush=True)

    names = [line.split(" | ") for line in theorems]
    questions = "".join(
        f"Require Semidp.{file[:-2]}.\nPrint Assumptions Semidp.{file[:-2]}.{name}.\n"
        for name, file, _ in names
    )
    (BUILD / "Assumptions.v").write_text(questions, encoding="utf-8")
    answers = run("coqc", *OPTIONS, "Assumptions.v").strip().splitlines()
    if answers != [CLOSED] * len(theorems):
        sys.exit("proofs: some theorem uses an axiom:\n" + "\n".join(answers))

    modules = [f"Semidp.{Path(name).stem}" for name in files]
    summary = run("coqchk", "-silent", "-o", "-R", ".", "Semidp", *modules)
    if "* Axioms: <none>" not in summary or summary.count("<none>") != 4:
        sys.exit(f"proofs: coqchk does not accept everything:\n{summary}")

    made = "\n".join(theorems) + "\n"
    (BUILD / LIST.name).write_text(made, encoding="utf-8")
    if not LIST.exists() or LIST.read_text(encoding="utf-8") != made:
        sys.exit(f"proofs: {LIST.name} is not what the files say; copy {BUILD / LIST.name} over it")
    print(
        f"proofs: {len(theorems)} theorems in {len(files)} files, axioms used: none "
        f"(coqc and coqchk, {time.monotonic() - started:.0f} s)"
    )


if __name__ == "__main__":
    main()
