"""What errors remember, and what a ledger counts: findings of a review that stay fixed."""

import os
from pathlib import Path

import numpy as np
import pytest

from semidp.errors import BudgetExceeded, DataError, InputError, SchemaError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.files import replace_file
from semidp.promise.guarantee import Guarantee
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import StructuralZero
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget, zcdp
from semidp.publish.plan import Plan
from semidp.publish.sources.opening import open_source
from semidp.publish.statistics.tables.asked import TableRequest

SECRET = "a secret name"


def test_an_error_about_bins_does_not_remember_the_value() -> None:
    with pytest.raises(DataError) as caught:
        Feature("age", bins=[0, 18]).codes(np.array(["17", SECRET], dtype=object))
    assert caught.value.__context__ is None
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize("where", ["count(*) > 2", "sum(age) > 2 AND name = 'x'"])
def test_a_where_that_looks_at_other_records_is_refused_in_our_words(where: str) -> None:
    with pytest.raises(
        InputError, match=r"the WHERE must depend on the record alone, and .* (count|sum)\(\)"
    ) as caught:
        open_source({"age": np.array([1, 2, 3]), "name": np.array(["x", "y", SECRET])}, where=where)
    assert caught.value.__context__ is None


def test_a_link_to_a_ledger_is_that_ledger(tmp_path: Path) -> None:
    # A charge used to replace the link by a file of its own, and left the ledger behind it
    # uncharged.
    book = Ledger.create(tmp_path / "ledger.json", Budget.zcdp(1))
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.json"
    link.symlink_to(book.path)
    guarantee = Guarantee(Dataspace.from_description("totals"), Ball(2), zcdp("0.6"))
    Ledger(link).charge(guarantee, "first")
    assert link.is_symlink()
    assert len(book.account().charges) == 1
    with pytest.raises(BudgetExceeded):
        book.charge(guarantee, "second")


def test_a_file_is_moved_into_place_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After the content, the folder must reach the disk: else a power failure takes a charge back.
    steps: list[str] = []
    sync, move = os.fsync, os.replace

    def fsync(handle: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        sync(handle)

    def replace(*names: Path) -> None:
        steps.append("move")
        move(*names)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    replace_file(tmp_path / "ledger.json", "spent")
    assert steps == ["file", "move", "folder"]


def test_structural_zeros_of_undeclared_features_are_refused_before_the_data_are_read() -> None:
    # The levels would come from the data, and the message about a level that is not there lists
    # those that are.
    with pytest.raises(SchemaError, match="declare their levels"):
        Plan(
            [TableRequest(["sex", "name"], Budget.zcdp(1))],
            [Margin("sex")],
            structural_zeros=[StructuralZero.from_pattern({"name": "nobody"})],
            levels_from_data=True,
        )
