"""The incidents of a round: each kind with the evidence that it needs, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.protocol.documents.incidents import (
    VOTES_OF,
    decode_incidents,
    decode_preimage,
    encode_incidents,
    preimage_fields,
)
from ledger.protocol.errors import EncodingError
from ledger.protocol.types import IncidentKind
from tests.protocol.documents.changes import INCIDENTS, KINDS, OPENING

KIND = KINDS["incidents"]
# The second incident is a wrong proposal, the fourth an equivocation.
VOTE = ("incidents", 1, 4, 0)


def test_a_round_without_incidents_can_be_written_down() -> None:
    calm = replace(INCIDENTS, incidents=())
    assert decode_incidents(encode_incidents(calm)) == calm


def test_each_kind_has_its_number_of_votes() -> None:
    assert [VOTES_OF[kind] for kind in IncidentKind] == [0, 0, 1, 2]
    assert [kind.value for kind in IncidentKind] == [1, 2, 3, 4]


def test_an_opening_is_six_fields() -> None:
    assert len(preimage_fields(OPENING)) == 6
    assert decode_preimage(preimage_fields(OPENING)) == OPENING
    with pytest.raises(EncodingError, match="is not a list of 6"):
        decode_preimage(preimage_fields(OPENING)[:5])


def test_incidents_ascend_by_phase_view_member_and_kind() -> None:
    for one, other in ((0, 1), (1, 2), (2, 3)):
        swapped = list(INCIDENTS.incidents)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        with pytest.raises(EncodingError, match="incidents are not strictly ascending"):
            decode_incidents(encode_incidents(replace(INCIDENTS, incidents=tuple(swapped))))
    twice = (INCIDENTS.incidents[0],) * 2
    with pytest.raises(EncodingError, match="incidents are not strictly ascending"):
        decode_incidents(encode_incidents(replace(INCIDENTS, incidents=twice)))


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("round",), -1, "round -1"),
        (("base",), b"", "is not 32 bytes"),
        (("incidents", 0), [1, 0, 2, 1, []], "is not a list of 6"),
        (("incidents", 0, 0), 0, "phase 0, kind 1: no such incident"),
        (("incidents", 3, 1), 2**32, "view 4294967296"),
        (("incidents", 3, 1), 2**32 - 1, None),
        (("incidents", 0, 3), 0, "phase 1, kind 0: no such incident"),
        (("incidents", 0, 4), [1], "is not a list of 0"),
        (("incidents", 1, 4), [], "is not a list of 1"),
        (("incidents", 3, 4), [], "is not a list of 2"),
        (("incidents", 0, 3), 3, "is not a list of 1"),
        (VOTE, [1], "is not a list of 5"),
        ((*VOTE, 0), 0, "vote kind 0 is neither request nor reply"),
        ((*VOTE, 0), 2, None),
        ((*VOTE, 4), b"", "is not 65 bytes"),
        (("incidents", 0, 5), [1], "is not a list of 0"),
        (("incidents", 1, 5), [], "is not a list of 6"),
        (("incidents", 1, 5, 5), 7, "is not 32 bytes"),
    ],
)
def test_incidents_that_are_none_are_refused(
    path: tuple[object, ...], new: object, fact: str | None
) -> None:
    data = KIND.changed(path, new)
    if fact is None:
        assert encode_incidents(decode_incidents(data)) == data
        return
    with pytest.raises(EncodingError, match=fact) as caught:
        decode_incidents(data)
    assert len(str(caught.value)) < 300, "an error is one line"
