"""The tree of refusals."""

from __future__ import annotations

from ledger.protocol import errors


def test_a_refusal_says_what_the_contract_says() -> None:
    refusal = errors.WrongRoundError()
    assert str(refusal) == refusal.reason == "committee_ledger: wrong round"


def test_a_refusal_can_add_its_circumstances() -> None:
    refusal = errors.WrongRoundError("round 3 is open")
    assert str(refusal) == "committee_ledger: wrong round (round 3 is open)"
    assert refusal.reason == "committee_ledger: wrong round"


def test_every_refusal_has_a_reason_of_its_own() -> None:
    leaves = errors.ProtocolRefusal.__subclasses__()
    assert len({leaf.fact for leaf in leaves}) == len(leaves)
    assert set(errors.REFUSALS.values()) == set(leaves)
    assert all(errors.REFUSALS[leaf().reason] is leaf for leaf in leaves)
    assert all(leaf.fact for leaf in leaves)


def test_every_error_is_in_one_tree_and_the_docstring() -> None:
    drawn = errors.__doc__ or ""
    leaves = errors.CmflError.__subclasses__()
    for leaf in (leaf for leaf in leaves if leaf.__module__ == errors.__name__):
        assert leaf.__name__ in drawn
