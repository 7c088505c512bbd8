"""The JSON Schemas: they allow what the software writes and reads, and nothing else."""

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import semidp
from semidp.cli import run
from semidp.cli.demo import SCHEMAS, bundle_schema, load_schema
from semidp.promise.accounting import ledger
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.plan import Plan
from semidp.publish.results.published_table import FitKind
from semidp.publish.selection import NAMES
from semidp.publish.settings import list_file_settings, list_settings
from semidp.publish.statistics.distribution.kind import Answers
from semidp.publish.statistics.odds_ratio.umpu import Alternative
from semidp.publish.statistics.outcomes.request import Statistic
from semidp.publish.statistics.protocol.requests import PlanEntry
from semidp.publish.statistics.protocol.statistic import plan_keys, result_keys
from semidp.publish.statistics.quantiles import QuantileMechanism
from semidp.publish.statistics.regression.designs import Coding
from semidp.publish.statistics.regression.kind import Model
from tests.spec.json_schema import (
    ANNOTATIONS,
    KEYWORDS,
    failures,
    started,
    take_failures,
    validate,
    validate_left,
    validated,
)

OPEN = ("versions", "files", "structural_zero", "x11", "read_as", "dataspaces", "runs")
"""Objects whose keys are names of features, files, columns, digests or runs."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A release.json with several kinds of results, its plan, its totals and its ledger."""
    folder = tmp_path_factory.mktemp("written")
    people = {"sex": [*"fm"] * 9, "ill": [*"nny"] * 6, "pay": [*range(9)] * 2}
    asked = (
        semidp.table("sex", "ill"),
        semidp.mean("pay", bounds=(0, 9), by="sex"),
        semidp.median("pay", bounds=(0, 9), by="sex"),
    )
    book = semidp.Ledger.create(folder / "ledger.json", semidp.Budget.zcdp(2))
    before = dict(validated)
    semidp.release(
        people,
        *asked,
        exact=["sex"],
        levels={"ill": ["n", "y"]},
        rho="0.5",
        ledger=book,
        title="A test",
        out=folder / "release",
    )
    assert all(validated[name] > before[name] for name in ("release", "ledger"))
    document = json.loads((folder / "release" / "release.json").read_text("utf-8"))
    charges = json.loads((folder / "ledger.json").read_text("utf-8"))
    return {
        "release": document,
        "plan": document["plan"],
        "totals": document["dataspace"],
        "ledger": charges,
    }


def list_objects(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all objects in a document."""
    if isinstance(value, dict):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        if isinstance(part, (dict, list)):
            yield from list_objects(part, (*path, key))


def copy_and_find(document: Any, path: tuple[Any, ...]) -> tuple[Any, Any]:
    changed = found = copy.deepcopy(document)
    for step in path:
        found = found[step]
    return changed, found


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_was_written_is_valid_and_a_damaged_copy_is_not(
    written: dict[str, Any], name: str
) -> None:
    document = written[name]
    assert validate(name, document) == []
    added = removed = 0
    for path in list_objects(document):
        names = [step for step in path if isinstance(step, str)]
        if names and names[-1] in OPEN:
            continue
        changed, found = copy_and_find(document, path)
        found["surplus"] = 1
        assert validate(name, changed), path
        added += 1
        for key in copy_and_find(document, path)[1]:
            if "plan" in (name, *path) and key in ("rho", "report_delta"):
                continue  # numbers of a plan file may be texts and floats
            changed, found = copy_and_find(document, path)
            # A value of another type; nothing here is both a list and a number.
            found[key] = 0.5 if isinstance(found[key], (list, dict, str, bool)) else ["0.5"]
            assert validate(name, changed), (path, key)
            removed += 1
    assert added >= 2
    assert removed >= 5


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("release", lambda it: it.pop("guarantee")),
        ("release", lambda it: it.pop("plan")),
        ("release", lambda it: it.update(schema_version=2)),
        ("release", lambda it: it["tables"][0]["noise"].pop("sigma2")),
        ("release", lambda it: it["tables"][0]["noise"].update(sigma2="4.")),
        ("release", lambda it: it["a"].update(kind="balls")),
        ("release", lambda it: it["guarantee"].update(mu_squared="1")),
        ("ledger", lambda it: it["charges"][0].pop("head")),
        ("ledger", lambda it: it["charges"][0].update(group=0)),
        ("ledger", lambda it: it["charges"][0]["measured"][0]["noise"].update(sigma2=4)),
        ("ledger", lambda it: it.pop("dataspaces")),
        ("totals", lambda it: it["margins"][0]["counts"].append(-1)),
        ("totals", lambda it: it.update(n=True)),
        ("totals", lambda it: it.update(link={})),
        ("plan", lambda it: it["group"][0].pop("column")),
        ("plan", lambda it: it["group"][0].update(delta="1e-6")),
        ("plan", lambda it: it.update(adjacency="exchanges")),
        ("plan", lambda it: it.update(report_delta="1/ 3")),
    ],
)
def test_a_damage_is_found(written: dict[str, Any], name: str, damage: Any) -> None:
    changed = copy.deepcopy(written[name])
    damage(changed)
    assert validate(name, changed)


def test_writers_are_watched(tmp_path: Path) -> None:
    """The twin of what `conftest` does after each test."""
    ledger._write(tmp_path / "ledger.json", {"schema_version": 3, "dataspaces": {}})
    assert len(take_failures()) >= 4
    Plan.from_json({"table": [{"features": ["sex"]}]})
    assert not failures


def test_what_a_process_leaves_is_validated(tmp_path: Path, written: dict[str, Any]) -> None:
    """The twin for files that another process wrote."""
    before = dict(validated)
    (tmp_path / "inner").mkdir()
    wrong = copy.deepcopy(written["ledger"])
    del wrong["charges"][0]["head"]
    files = {"whole.json": written["ledger"], "inner/damaged.json": wrong, "other.json": [1]}
    for name, document in files.items():
        text = json.dumps(document)
        code = f"open({str(tmp_path / name)!r}, 'w').write({text!r})"
        subprocess.run([sys.executable, "-c", code], check=True)
    assert len(started) >= 3
    validate_left([tmp_path])
    assert len(take_failures()) == 1
    assert validated["ledger"] == before["ledger"] + 2
    assert sum(validated.values()) == sum(before.values()) + 2


def list_requests(base: type) -> Iterator[Any]:
    for one in base.__subclasses__():
        is_request = isinstance(getattr(one, "key", None), str) and hasattr(one, "_written")
        # a test may have made a statistic of its own
        if is_request and one.__module__.startswith("semidp."):
            yield one
        yield from list_requests(one)


def test_the_plan_has_the_keys_of_requests_and_settings() -> None:
    plan_keys()  # which registers all statistics
    schema = load_schema("plan")
    requests = {request.key: request for request in list_requests(PlanEntry)}
    assert len(requests) == 7
    for key, request in requests.items():
        entry = schema["$defs"][key]
        assert set(entry["properties"]) == request._keys()
        assert set(entry["required"]) == set(request._needs)
    top = set(schema["properties"])
    for value in (*plan_keys(), *list_file_settings()):
        assert value in top
    for setting in list_settings().values():
        table, _, inner = setting.key.partition(" ")
        if not setting.key:
            continue
        name = table.strip("[]")
        assert name in top, setting.name
        properties = schema["properties"][name].get("properties", {})
        properties = properties or schema["$defs"].get(name, {}).get("properties", {})
        assert not inner or inner in properties, setting.name


@pytest.mark.parametrize(
    ("request_key", "key", "choices"),
    [
        ("table", "fit", FitKind),
        ("table", "mechanism", ("auto", *NAMES)),
        ("group", "statistic", Statistic),
        ("quantile", "mechanism", QuantileMechanism),
        ("distribution", "answers", Answers),
        ("regression", "model", Model),
        ("regression", "coding", Coding),
        ("odds_ratio", "alternative", Alternative),
    ],
)
def test_choices_are_those_of_the_software(request_key: str, key: str, choices: Any) -> None:
    listed = load_schema("plan")["$defs"][request_key]["properties"][key]["enum"]
    assert sorted(listed) == sorted(map(str, choices))


def list_laws(base: type[Mechanism]) -> Iterator[str]:
    for one in base.__subclasses__():
        # the naive mechanisms of studies are in no release
        if "name" in vars(one) and one.__module__.startswith("semidp.promise."):
            yield one.name
        yield from list_laws(one)


def test_every_law_of_noise_has_a_form() -> None:
    plan_keys()
    laws = set(list_laws(Mechanism))
    assert laws == set(load_schema("release")["$defs"]["noise"]["properties"]["law"]["enum"])
    recorded: set[str] = set()
    for form in load_schema("ledger")["$defs"]["noise"]["anyOf"]:
        law = form["properties"]["law"]
        recorded |= set(law.get("enum", [law.get("const")]))
    assert recorded == laws


def test_a_release_has_the_lists_of_all_results() -> None:
    assert set(result_keys()) <= set(load_schema("release")["properties"])


def list_keywords(schema: Any) -> Iterator[str]:
    """The keywords of a schema, properties and definitions apart."""
    if isinstance(schema, list):
        for part in schema:
            yield from list_keywords(part)
    elif isinstance(schema, dict):
        for key, part in schema.items():
            yield key
            if key in ("properties", "$defs"):
                for named in part.values():
                    yield from list_keywords(named)
            elif key not in ("enum", "const", "dependentRequired"):
                yield from list_keywords(part)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_validator_knows_all_keywords(name: str) -> None:
    used = set(list_keywords(load_schema(name)))
    assert used <= KEYWORDS.keys() | ANNOTATIONS


def test_a_schema_is_printed_with_those_that_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "release"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == bundle_schema("release")
    named = {word for word in json.dumps(printed).split('"') if word.endswith(".schema.json")}
    held = {key for key in printed["$defs"] if key.endswith(".schema.json")}
    assert (
        held
        == named - {"release.schema.json"}
        == {f"{x}.schema.json" for x in SCHEMAS[::2]} | {"totals.schema.json"}
    )
    assert run(["schema", "relase"]) == 2
    assert "release" in capsys.readouterr().err
