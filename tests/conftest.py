"""What all tests share: laws have no deadline, since a busy machine breaks none, and draw the same cases every time.

``pytest --hypothesis-profile explore`` draws new ones.
"""

import pytest
from hypothesis import settings

settings.register_profile("explore", deadline=None)
settings.register_profile("semidp", deadline=None, derandomize=True)
settings.load_profile("semidp")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the cases of a test marked ``few(n)`` but for n, spread evenly, to ``make test-long``."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for several in cases.values():
        marker = several[0].get_closest_marker("few")
        assert marker is not None
        (kept,) = marker.args
        chosen = {round(place * (len(several) - 1) / max(kept - 1, 1)) for place in range(kept)}
        for place, item in enumerate(several):
            if place not in chosen:
                item.add_marker(pytest.mark.long)
