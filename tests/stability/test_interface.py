"""No public name, option, key, field or schema changes without a line in the changelog."""

import json
from pathlib import Path

import pytest

import semidp
from semidp.publish import settings
from tests.stability import interface

PAGE = interface.ROOT / "docs" / "stability.md"


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    return interface.list_interface()


def test_what_changed_is_in_the_changelog(now: dict[str, str]) -> None:
    kept = interface.read_listing()
    changes = interface.list_new_lines(kept, interface.newest_changes()[1])
    unsaid = interface.find_unsaid(kept["entries"], now, changes)
    assert unsaid == [], (
        "name these in CHANGELOG.md in backticks, then run python -m tests.stability.interface"
    )


def test_the_listing_has_everything_that_the_page_promises(now: dict[str, str]) -> None:
    kinds = ("semidp.Release.", "semidp.publish.", "semidp release --", "setting ", "plan key ")
    for kind in (*kinds, "release.json "):
        assert sum(name.startswith(kind) for name in now) > 8, kind
    assert len(now) > 700
    assert "mu=None" in now["semidp.release"]
    assert now["semidp show --card"] == "flag"
    assert now["semidp show RELEASE"] == "argument"
    page = PAGE.read_text(encoding="utf-8")
    for word in ("DeprecationWarning", "schema_version", "tests.stability.interface"):
        assert word in page


def test_a_change_that_nobody_wrote_down_is_found(
    now: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real changes of what users call: each is found, and a line in the changelog settles it."""

    def release(data: object, *requests: object, mu: object = None) -> None: ...

    monkeypatch.setattr(semidp, "release", release)
    home = next(one for one in semidp.Release.__mro__ if "part" in vars(one))
    monkeypatch.delattr(home, "part")
    rows = tuple(row for row in settings.RUNNING if row.name != "title")
    monkeypatch.setattr(settings, "RUNNING", rows)
    changed = interface.list_interface()
    assert changed["semidp.release"] == "(data, *requests, mu=None)"
    found = interface.find_unsaid(now, changed, "- Nothing happened.")
    assert {*found} == {"semidp.release", "semidp.Release.part", "setting title"}
    line = "- `semidp.release` takes less; `Release.part` and the key `title` are gone."
    assert interface.find_unsaid(now, changed, line) == []
    # another name that contains it, or words outside of code, say nothing
    assert interface.find_unsaid({}, {"semidp new": "", "semidp new --x": ""}, "`semidp new`") == []
    assert interface.find_unsaid(
        {"semidp new": ""}, {"semidp new": "", "semidp new --x": ""}, "`semidp new`"
    ) == ["semidp new --x"]
    other = "- `semidp.released`, `Release.partition`, title, `subtitle` and `title-page` changed."
    assert interface.find_unsaid(now, changed, other) == found


def test_a_schema_that_changes_is_found(
    tmp_path: Path, now: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "object", "required": ["plan"]}
    before = interface.hash_schema(json.dumps(schema, indent=8))
    assert before == interface.hash_schema(json.dumps(schema))
    after = interface.hash_schema(json.dumps({**schema, "required": []}))
    name = "schema release.schema.json"
    assert interface.find_unsaid({name: before}, {name: after}, "") == [name]
    assert interface.find_unsaid({name: before}, {name: after}, "`release.schema.json`") == []
    # a listing is not written anew past the changelog
    kept = tmp_path / "interface.json"
    older = interface.hash_line(f"- `{name[7:]}` is new.")
    document = {"version": "0.3.0", "lines": [older], "entries": {**now, name: before}}
    kept.write_text(json.dumps(document))
    monkeypatch.setattr(interface, "LISTING", kept)
    monkeypatch.setattr(interface, "list_interface", lambda: {**now, name: after})
    monkeypatch.setattr(interface, "newest_changes", lambda: ("0.3.0", [f"- `{name[7:]}` is new."]))
    assert interface.write_listing() == 1
    assert json.loads(kept.read_text())["entries"][name] == before
    monkeypatch.setattr(interface, "newest_changes", lambda: ("0.3.0", [f"- `{name[7:]}` grew."]))
    assert interface.write_listing() == 0
    assert json.loads(kept.read_text())["entries"][name] == after
