"""Fuzz release folders and workbooks with coverage feedback: an input that reaches new branches is
kept, and changed further.

``python -m tests.fuzz.guided releases|workbooks FOLDER SECONDS`` takes so many seconds of the
processor. It is a process of its own, because atheris must import what is fuzzed. Kept inputs go to
the folder, and one that fails; ``python -m tests.fuzz.guided KIND FOLDER FILE`` runs it again.
"""

import importlib
import json
import os
import random
import resource
import shutil
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

MEMORY = 1000  # megabytes that inputs may take on top
LONGEST = 60  # seconds, far beyond what any input takes
MOST_FAULTS = 4
LENGTH = 64  # bytes of an input; a choice takes two


class WrittenChoices(random.Random):
    """Choices read from bytes, so that inputs which are alike have most of their faults in
    common.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self.data, self.read = data, 0

    def random(self) -> float:
        self.read += 2
        return random.Random(self.data[self.read - 2 : self.read]).random()

    def is_at_end(self) -> bool:
        return self.read >= len(self.data)


def main(kind: str, folder: Path, what: str) -> None:
    atheris: Any = importlib.import_module("atheris")
    place, corpus = folder / "place", folder / "corpus"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    corpus.mkdir(exist_ok=True)
    with atheris.instrument_imports(include=["semidp", "openpyxl"]):
        checker = importlib.import_module("semidp.checker.semidp_check")
        faults: Any = importlib.import_module("tests.fuzz.faults")
        program: Any = importlib.import_module("semidp.cli._program")
        cases: Any = importlib.import_module("tests.fuzz.test_fuzz")
        faults.checker = checker
        cases.fill_place(place)
        if kind == "releases":
            target = faults.FaultyFolders(place)
            uses = [target.show, target.check]
        else:
            target = faults.FaultyWorkbooks(place)
            uses = [target.read]
        for valid in target.valid:  # imports what is imported late
            target.write(valid)
            for use in uses:
                use()
    counts: Counter[str] = Counter()

    def attempt(data: bytes) -> None:
        """Use what has the faults that the bytes choose; only sentences may be raised."""
        draw = WrittenChoices(data)
        faulty = draw.choice(target.valid)
        while not draw.is_at_end() and faulty.faults < MOST_FAULTS:
            faulty = target.add(faulty, draw)
        target.write(faulty)
        counts["inputs"] += 1
        for use in uses:
            try:
                use()
                counts[f"{use.__name__} to the end"] += 1
            except Exception as error:
                if program._failure(error) == 70:
                    traceback.print_exc()
                    raise
        if is_timed and time.process_time() > deadline:
            print(json.dumps({"kind": kind, **counts}), flush=True)
            os._exit(0)

    for number in range(20):
        (corpus / f"seed{number}").write_bytes(random.Random(number).randbytes(LENGTH // 2))
    flags = [f"-artifact_prefix={folder}/", f"-timeout={LONGEST}", f"-max_len={LENGTH}"]
    flags.append("-len_control=0")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + MEMORY
    flags.append(f"-rss_limit_mb={grown}")
    is_timed = what.isdigit()
    flags.append(str(corpus) if is_timed else what)
    deadline = time.process_time() + int(what) if is_timed else 0
    atheris.Setup([sys.argv[0], *flags], attempt)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute(), sys.argv[3])
