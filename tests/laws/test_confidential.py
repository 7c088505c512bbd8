"""Confidential values refuse whatever would let them out, and few modules may open them."""

import ast
import copy
import json
import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semidp
from semidp import Budget, Outcome, Plan, prepare
from semidp.promise.confidential import REFUSING, Confidential, ConfidentialValueError, reveal
from semidp.promise.documents import encode
from semidp.promise.mechanisms.mechanism import Measurement
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.progress import silent
from semidp.publish import GroupRequest, QuantileRequest, RegressionRequest, TableRequest
from semidp.publish.results import texts
from semidp.publish.results.columns import Columns
from semidp.publish.results.role_columns import Sheet, estimate_columns, noisy_column
from semidp.publish.statistics.answered import AnsweredRequest
from semidp.publish.statistics.distribution.kind import DistributionRequest
from semidp.publish.statistics.odds_ratio.kind import OddsRatioRequest
from semidp.publish.statistics.protocol.statistic import kinds
from semidp.publish.statistics.tables.request import TablesRequest

PACKAGE = Path(semidp.__file__).parent
SECRET = 41

MAY_REVEAL = {
    "promise/mechanisms/mechanism.py",  # Mechanism.measure
    "promise/mechanisms/exponential.py",
    "publish/statistics/tables/part_steps.py",  # the same for what lies above parts
    "publish/phases.py",  # groups counts by bins before a mechanism measures them
    "assess/attacked_pairs.py",  # the two datasets that an auditor brings
}
"""The modules that may open a confidential value."""


def modules_that_reveal() -> set[str]:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        if "reveal" not in text and "_Confidential__" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            imports = isinstance(node, ast.ImportFrom) and "reveal" in [a.name for a in node.names]
            opens = isinstance(node, ast.Attribute) and node.attr.startswith("_Confidential__")
            named = isinstance(node, ast.Attribute) and node.attr == "reveal"
            if imports or opens or named:
                found.add(path.relative_to(PACKAGE).as_posix())
    return found


def test_only_readers_and_mechanisms_open_a_confidential_value() -> None:
    assert modules_that_reveal() == {*MAY_REVEAL, "promise/confidential.py"}


USES: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "format": lambda value: f"{value:,}",
    "bool": bool,
    "int": int,
    "float": float,
    "list": list,
    "len": len,
    "hash": hash,
    "first": lambda value: value[0],
    "in": lambda value: SECRET in value,
    "equal": lambda value: value == SECRET,
    "unequal": lambda value: value != SECRET,
    "less": lambda value: value < SECRET,
    "sum": lambda value: value + 1,
    "added": lambda value: 1 + value,
    "product": lambda value: 2 * value,
    "array": np.asarray,
    "array of several": lambda value: np.array([value], dtype=float),
    "numpy sum": np.sum,
    "numpy sine": np.sin,
    "beside an array": lambda value: np.ones(3) + value,
    "concatenated": lambda value: np.concatenate([value, value]),
    "attribute": lambda value: value.shape,
    "pickled": pickle.dumps,
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
    "json": json.dumps,
    "codec": encode,
    "range": range,
    "index": operator.index,
    "changed": lambda value: setattr(value, "other", 1),
}


@pytest.mark.parametrize("use", USES)
def test_nothing_can_be_done_with_it(use: str) -> None:
    for value in (Confidential(SECRET), Confidential(np.full(3, SECRET))):
        with pytest.raises(TypeError) as failed:
            USES[use](value)
        assert str(SECRET) not in str(failed.value)


def test_what_it_refuses_would_work_with_what_is_in_it() -> None:
    """A twin: most of these uses are possible with the value itself."""
    works = 0
    for use in USES.values():
        try:
            use(reveal(Confidential(SECRET)))
            works += 1
        except (TypeError, AttributeError, ValueError):
            continue
    assert works >= 15
    assert {name for name in REFUSING if name in dir(Confidential)} == {*REFUSING}


def test_it_is_shown_without_its_value() -> None:
    assert repr(Confidential(SECRET)) == "<confidential>"
    assert repr([Confidential(SECRET)]) == "[<confidential>]"


# --- publishing functions

RECORDS = {
    "sex": [*"ffmm"] * 20,
    "ward": [*"abab"] * 20,
    "days": [1.0, 2.0, 3.0, 4.0] * 20,
    "ok": [0, 1, 1, 0] * 20,
}
DAYS, BUDGET, BY = Outcome("days", 0, 10, 10), Budget.gdp(1), [["sex"]]
REQUESTS = {
    "table": TableRequest(["sex", "ward"], BUDGET),
    "tables": TablesRequest([TableRequest(["sex"]), TableRequest(["ward"])], BUDGET),
    "group": GroupRequest("mean", DAYS, BY, BUDGET),
    "answered": AnsweredRequest("mean", DAYS, BY, BUDGET),
    "regression": RegressionRequest(DAYS, ["sex"], BUDGET),
    "quantile": QuantileRequest(DAYS, BY, budget=BUDGET, mechanism="selection"),
    "distribution": DistributionRequest(DAYS, BY, budget=BUDGET),
    "odds_ratio": OddsRatioRequest("sex", "ward", BUDGET),
}


def test_every_kind_of_statistic_is_tried() -> None:
    assert {kind.key for kind in kinds() if kind.asked} <= {*REQUESTS}


def write_files(request: Any, mechanism: Any, measured: Measurement, scope: Any) -> int:
    """Publish a request and write its files; return how many bytes they have."""
    files = request.publish(mechanism, measured, scope, silent).files()
    return sum(len(part) for columns in files.values() for part in columns.csv())


@pytest.mark.parametrize("name", REQUESTS)
def test_no_request_publishes_a_confidential_value(name: str) -> None:
    exact = ["sex", "ward"] if name == "odds_ratio" else ["sex"]
    plan = Plan([REQUESTS[name]], exact, levels_from_data=True)
    prepared = prepare(plan, RECORDS)
    ((request, mechanism),), (values,) = prepared.calibrated_requests, prepared.values
    assert isinstance(values, Confidential)
    measured = mechanism.measure(values, SeededRandomness(1))
    stolen: Any = values
    for forged in (
        Measurement(stolen, stolen, mechanism.name, mechanism.claim, True),
        Measurement(stolen, measured.projected, mechanism.name, mechanism.claim, True),
    ):
        # A fit says itself that it takes noisy numbers alone.
        with pytest.raises(semidp.SemidpError):
            write_files(request, mechanism, forged, prepared.scope)
    # A twin: what a mechanism measured is published.
    assert write_files(request, mechanism, measured, prepared.scope) > 0


def test_no_file_and_no_text_takes_one() -> None:
    secret: Any = Confidential(np.array([SECRET]))
    sheet = Sheet(
        name="x",
        role_columns=(
            *estimate_columns("total", secret, np.ones(1), "a total"),
            noisy_column("noisy", np.ones(1)),
        ),
        heading="A total",
    )
    for publish in (
        sheet.csv,
        sheet.to_dict,
        sheet.section,
        lambda: list(sheet.lines()),
        lambda: b"".join(Columns({}, {"count": secret}).csv()),
    ):
        with pytest.raises(ConfidentialValueError):
            publish()
    number: Any = Confidential(float(SECRET))
    tried = 0
    for name in ("count_text", "error_text", "number_text", "share_text", "scale_text"):
        with pytest.raises(TypeError):
            getattr(texts, name)(number)
        tried += 1
    for write in (texts.estimate_text, texts.rounded_text):
        with pytest.raises(TypeError):
            write(number, 1.0)
        with pytest.raises(TypeError):
            write(1.0, number)
        tried += 2
    assert tried == 9
