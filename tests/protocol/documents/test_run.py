"""The run document: every setting, client and tensor in its range."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.protocol import canonical
from ledger.protocol.documents.run import MAX_SIZES, RunDocument, decode_run, encode_run
from ledger.protocol.errors import EncodingError
from ledger.protocol.payload_forms import PAYLOAD_FORMS
from ledger.protocol.types import Address, Beacon, Quorum, RegisteredClient
from tests.protocol.documents.changes import KINDS, LAYOUT, PARAMETERS, REGISTRY, RUN
from tests.protocol.support import digests
from tests.protocol.test_canonical import maps

KIND = KINDS["run"]
OWN = f"mine.py:manhattan@sha256:{'ab' * 32}"
RULES: tuple[dict[str, Any], ...] = (
    {"strategy": 1},
    {"strategy": 2, "distance": OWN},
    {"strategy": 3},
)


@st.composite
def runs(draw: st.DrawFn) -> RunDocument:
    """Return configurations of three members and any other settings."""
    window = draw(st.integers(1, 2**31))
    parameters = replace(
        PARAMETERS,
        aggregation_ppm=draw(st.integers(0, 1_000_000)),
        rounds=draw(st.integers(1, 2**32 - 1)),
        server_rate=draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
        quorum=draw(st.sampled_from(Quorum)),
        beacon=draw(st.sampled_from(Beacon)),
        commit_blocks=window,
        deadline_blocks=draw(st.integers(window + 2, 2**32 - 1)),
        view_seconds=draw(st.integers(1, 2**20)),
        payload=draw(st.sampled_from(list(PAYLOAD_FORMS))),
        **draw(st.sampled_from(RULES)),
    )
    addresses = draw(
        st.sets(st.binary(min_size=20, max_size=20).map(Address), min_size=7, max_size=7)
    )
    claims = draw(st.lists(st.integers(1, 2**50), min_size=7, max_size=7))
    registry = tuple(map(RegisteredClient, sorted(addresses), claims))
    return RunDocument(parameters, registry, draw(digests), LAYOUT, draw(maps))


@given(document=runs())
def test_every_run_can_be_read_back(document: RunDocument) -> None:
    assert decode_run(encode_run(document)) == document


def test_only_a_non_default_payload_form_is_in_the_document() -> None:
    rounded = replace(RUN, parameters=replace(PARAMETERS, payload="q8"))
    assert b"payload" not in encode_run(RUN)
    assert b"\xa7payload\xa2q8" in encode_run(rounded)
    assert len(encode_run(rounded)) == len(encode_run(RUN)) + len(b"\xa7payload\xa2q8")
    assert decode_run(encode_run(rounded)) == rounded


@pytest.mark.parametrize(
    ("payload", "fact"),
    [
        ("float32", "payload = float32 is the default; a document omits it"),
        ("q4", "payload = q4 is none of float32, q8"),
        (8, "payload is not of type str"),
    ],
)
def test_a_payload_form_that_is_no_other_is_refused(payload: object, fact: str) -> None:
    value: Any = canonical.decode(encode_run(RUN))
    value["parameters"]["payload"] = payload
    with pytest.raises(EncodingError, match=fact):
        decode_run(canonical.encode(value))


def test_only_a_users_own_distance_is_in_the_document() -> None:
    own = replace(RUN, parameters=replace(PARAMETERS, strategy=1, distance=OWN))
    assert b"distance" not in encode_run(RUN)
    assert decode_run(encode_run(own)) == own


@pytest.mark.parametrize(
    ("strategy", "distance", "fact"),
    [
        (1, "squared", "distance = squared is the default; a document omits it"),
        (1, "l2", "distance = l2 is neither squared nor a function"),
        (3, OWN, "cannot be set with strategy 3"),
        (1, True, "distance is not of type str"),
    ],
)
def test_a_distance_that_is_not_the_users_own_is_refused(
    strategy: int, distance: object, fact: str
) -> None:
    value: Any = canonical.decode(encode_run(RUN))
    value["parameters"] |= {"strategy": strategy, "distance": distance}
    with pytest.raises(EncodingError, match=fact):
        decode_run(canonical.encode(value))


@pytest.mark.parametrize(
    "name", ["scoring", "reference", "threshold", "clip", "election", "scores_checked"]
)
def test_a_removed_setting_is_refused_by_name(name: str) -> None:
    value: Any = canonical.decode(encode_run(RUN))
    value["parameters"][name] = "mean"
    with pytest.raises(EncodingError, match=f"'{name}'.* are missing or not known"):
        decode_run(canonical.encode(value))


@pytest.mark.parametrize(
    ("path", "new", "fact"),
    [
        (("parameters", "rounds"), 0, "rounds = 0 is not in"),
        (("parameters", "server_rate"), 1, "server_rate is not of type float"),
        (("parameters", "server_rate"), float("nan"), "not a positive number"),
        (("parameters", "strategy"), 4, "strategy = 4 is none of 1, 2, 3"),
        (("parameters", "quorum"), "most", "'most' is not a valid Quorum"),
        (("parameters", "beacon"), "x" * 900, "parameters: 'xxx"),
        (("parameters", "deadline_blocks"), 5, "deadline_blocks = 5 is not in"),
        (("parameters", "clients"), 8, "7 registered clients are not 8"),
        (("parameters", "dimension"), 8, "its tensors have 7 numbers, and d = 8"),
        (("parameters",), {}, "fields .* are missing or not known"),
        (("registry",), [], "0 registered clients are not 7"),
        (("registry", 3), [bytes([4]) * 20], "is not a list of 2"),
        (("registry", 3), ["a" * 20, 1], "is not 20 bytes"),
        (("registry", 3), [bytes([4]) * 20, 0], "claims at least one sample"),
        (("registry", 3), [bytes([3]) * 20, 1], "addresses are not strictly ascending"),
        (("layout", 0), ["weight"], "is not a list of 2"),
        (("layout", 0), [1, [2, 3]], "is not a tensor's name and shape"),
        (("layout", 0), ["weight", [2, -3]], "size -3 is not a whole number of 32 bits"),
        (("layout", 0), ["bias", [2, 3]], "a tensor's name is repeated"),
        (("experiment",), [], "experiment is not of type"),
    ],
)
def test_a_run_that_breaks_a_rule_is_refused(
    path: tuple[object, ...], new: object, fact: str
) -> None:
    with pytest.raises(EncodingError, match=fact) as caught:
        decode_run(KIND.changed(path, new))
    assert len(str(caught.value)) < 300, "an error is one line"


def test_the_clients_claim_fewer_than_two_to_the_53_samples() -> None:
    others = sum(client.samples for client in REGISTRY[1:])
    for total, fits in ((2**53 - 1, True), (2**53, False)):
        first = replace(REGISTRY[0], samples=total - others)
        data = encode_run(replace(RUN, registry=(first, *REGISTRY[1:])))
        if fits:
            assert decode_run(data).registry[0] == first
            continue
        with pytest.raises(EncodingError, match="fewer than 2\\^53 can be"):
            decode_run(data)


def test_a_shape_has_at_most_sixteen_sizes() -> None:
    # A megabyte of sizes would take a minute to multiply.
    layout = (("weight", (1,) * (MAX_SIZES - 1) + (7,)),)
    assert decode_run(encode_run(replace(RUN, layout=layout))).layout == layout
    longer = (("weight", (1,) * MAX_SIZES + (7,)),)
    with pytest.raises(EncodingError, match="has 17 sizes, and at most 16"):
        decode_run(encode_run(replace(RUN, layout=longer)))
