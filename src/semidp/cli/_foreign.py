"""``semidp audit`` of files of outputs, of functions of others, and of results of ``semidp test``."""

import importlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from semidp.audit import Audit, affordable_samples, audit_function, audit_mechanism, audit_samples, draws_of_test
from semidp.cli._options import read_text
from semidp.cli.guarantee import Stated
from semidp.engines.samples import read_numbers
from semidp.errors import InputError
from semidp.files import from_json
from semidp.inference import OddsRatioResult
from semidp.noise import Randomness
from semidp.progress import Progress

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_CALLS = 20_000


def foreign_audit(
    what: str | None,
    outputs: Sequence[Path],
    pair: Path | None,
    stated: Stated,
    samples: int | None,
    randomness: Randomness,
    progress: Progress,
) -> Audit | None:
    """Return the audit of what is foreign; None where a plan or a release is to be audited."""
    if outputs:
        if what is not None or pair is not None or len(outputs) != 2:
            raise InputError("give --outputs twice, once for each of two adjacent datasets, and nothing else to audit")
        first, second = (read_numbers(path)[:samples] for path in outputs)
        return audit_samples(first, second, stated.curve(), randomness=randomness, progress=progress)
    if what is None:
        raise InputError("say what to audit: a release, a plan, module:function with --pair, or --outputs twice")
    if _FUNCTION.fullmatch(what) and not Path(what).exists():
        if pair is None:
            raise InputError("a function is audited on two datasets: give them with --pair FILE")
        datasets = _datasets(pair)
        claim = stated.curve()
        return audit_function(
            _function(what), *datasets, claim, samples=samples or _CALLS, randomness=randomness, progress=progress
        )
    if pair is not None or stated != Stated():
        raise InputError(
            "a plan, a release or a test states its own claim: leave --pair, --epsilon, --rho and --mu out"
        )
    result = _test(Path(what))
    if result is None:
        return None
    draws, move = draws_of_test(result)
    count = affordable_samples(draws, move, randomness) if samples is None else samples
    return audit_mechanism(
        draws, move, result.guarantee.tradeoff, samples=count, randomness=randomness, progress=progress
    )


def _datasets(path: Path) -> tuple[Any, Any]:
    try:
        found = from_json(read_text(path, "--pair"))
    except ValueError:
        found = None
    if not isinstance(found, list) or len(found) != 2:
        raise InputError(f"{path} does not hold a list of two datasets")
    return found[0], found[1]


def _function(what: str) -> Callable[[Any], Any]:
    module, name = what.split(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ImportError:
        raise InputError(f"there is no module {module!r} to import here") from None
    finally:
        sys.path.pop(0)
    if not callable(function):
        raise InputError(f"the module {module!r} has no function {name!r}")

    def called(dataset: Any) -> Any:
        try:
            return function(dataset)
        except Exception as error:
            raise InputError(f"{what} failed on a dataset of the pair ({type(error).__name__})") from None

    return called


def _test(path: Path) -> OddsRatioResult | None:
    """Return the odds-ratio test that a file holds, or None where it holds something else."""
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        document = json.loads(read_text(path, "the test"))
    except ValueError:
        return None
    return OddsRatioResult.from_json(document) if isinstance(document, dict) and "grid_bits" in document else None
