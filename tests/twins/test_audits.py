"""The search of an audit finds the pair of issue 43, item 1a, which it did not try before."""

import pytest

from semidp.assess.linked_pairs import worst_linked_pair
from semidp.promise.sensitivity import costs
from semidp.promise.sensitivity import described_moves as exchange_moves
from semidp.publish import pipeline
from semidp.publish.linked_mechanism import LinkedMechanism
from tests.twins.test_teeth import CLAIMS, WRONG


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_audit_tries_carriers_with_another_leaf(is_wrong, monkeypatch):
    made, right = [], LinkedMechanism.calibrate.__func__

    def calibrate(cls, *given, **options):
        made.append(right(cls, *given, **options))
        return made[-1]

    monkeypatch.setattr(LinkedMechanism, "calibrate", classmethod(calibrate))
    if is_wrong:
        wrong = WRONG["1a"](exchange_moves.list_exchanges)
        monkeypatch.setattr(costs, "list_exchanges", wrong)
        monkeypatch.setattr(pipeline, "refuse_false_claim", lambda _: None)
    case = CLAIMS["1a"]()
    assert case.run(case.town, 1).document
    noise = made[-1]
    claimed = float(noise.precision)
    pair = worst_linked_pair(noise.space, noise.members.sigma2, noise.units.sigma2, claimed)
    assert pair.share == pytest.approx(2 if is_wrong else 1, rel=0.01)
