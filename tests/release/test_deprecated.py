"""Names of 0.2.0 that changed: they work for one minor version and name their successor."""

import pytest

import semidp
from semidp import Budget, Plan, TableRequest


def test_prepared_parts_warns_and_is_calibrated() -> None:
    plan = Plan([TableRequest(["sex"], Budget.gdp(1))], features=[semidp.Feature("sex", "fm")])
    prepared = semidp.prepare(plan, {"sex": [*"ffm"]})
    with pytest.warns(DeprecationWarning, match="calibrated"):
        old = prepared.parts
    assert [request for request, _ in old] == [
        request for request, _ in prepared.calibrated_requests
    ]
    assert len(old) == 1
