"""Messages between ServerApp and ClientApp come back whole, or are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.runs.flower import (
    MAX_OVERHEAD_BYTES,
    MAX_SENTENCE,
    NodeDescription,
    NodeFailure,
    NodeQuery,
    TrainedPayloads,
    TrainingRequest,
    decode,
    encode,
)
from ledger.protocol import canonical
from ledger.protocol.errors import EncodingError

RUN = b"r" * 32
SEEDS = st.binary(min_size=32, max_size=32)
JOBS = st.lists(st.tuples(st.integers(0, 2**31), SEEDS), max_size=5)
TRAINING = st.tuples(SEEDS, st.binary(max_size=64), JOBS).map(
    lambda drawn: TrainingRequest(
        *drawn[:2], tuple(client for client, _ in drawn[2]), tuple(seed for _, seed in drawn[2])
    )
)
REQUESTS = st.one_of(st.builds(NodeQuery, SEEDS), TRAINING)
ANSWERS = st.one_of(
    st.builds(NodeDescription, st.integers(0, 9), st.integers(10, 99), st.just("torch 2, cpu")),
    st.builds(TrainedPayloads, st.lists(st.binary(max_size=64), max_size=5).map(tuple)),
    st.builds(NodeFailure, st.just("there is no such file")),
)

QUESTIONS = (NodeQuery, TrainingRequest)
REPLIES = (NodeDescription, TrainedPayloads, NodeFailure)
Request = NodeQuery | TrainingRequest
Answer = NodeDescription | TrainedPayloads | NodeFailure


@given(request=REQUESTS)
def test_requests_come_back_whole(request: Request) -> None:
    assert decode(encode(request), MAX_OVERHEAD_BYTES, *QUESTIONS) == request


@given(answer=ANSWERS)
def test_answers_come_back_whole(answer: Answer) -> None:
    assert decode(encode(answer), MAX_OVERHEAD_BYTES, *REPLIES) == answer


@given(data=st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(EncodingError):
        decode(data, MAX_OVERHEAD_BYTES, *QUESTIONS, *REPLIES)


@given(request=REQUESTS, answer=ANSWERS)
def test_requests_and_answers_are_told_apart(request: Request, answer: Answer) -> None:
    with pytest.raises(EncodingError, match="not expected"):
        decode(encode(request), MAX_OVERHEAD_BYTES, *REPLIES)
    with pytest.raises(EncodingError, match="not expected"):
        decode(encode(answer), MAX_OVERHEAD_BYTES, *QUESTIONS)


def test_messages_over_the_limit_are_not_decoded() -> None:
    request = TrainingRequest(RUN, bytes(100), (), ())
    message = encode(request)
    assert decode(message, len(message), TrainingRequest) == request
    with pytest.raises(EncodingError, match="over the bound"):
        decode(message, len(message) - 1, TrainingRequest)


TRAIN = {"version": 1, "kind": "train", "run": RUN, "start": b"", "clients": [1], "seeds": [RUN]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"run": b"short"},
        {"clients": [1, 2]},
        {"clients": [True]},
        {"clients": 1},
        {"seeds": [b"short"]},
        {"seeds": ["x" * 32]},
        {"more": 0},
    ],
)
def test_requests_with_other_fields_are_refused(wrong: dict[str, object]) -> None:
    decode(canonical.encode(TRAIN), 1000, TrainingRequest)
    with pytest.raises(EncodingError):
        decode(canonical.encode(TRAIN | wrong), 1000, TrainingRequest)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "node", "partition": 4, "partitions": 4, "environment": ""},
        {"kind": "node", "partition": -1, "partitions": 4, "environment": ""},
        {"kind": "trained", "payloads": ["text"]},
        {"kind": "failed", "sentence": b"bytes"},
        {"kind": "failed"},
    ],
)
def test_answers_with_other_fields_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(EncodingError):
        decode(canonical.encode({"version": 1, **fields}), 1000, *REPLIES)


def test_sentences_of_others_are_one_bounded_line() -> None:
    fields = {"version": 1, "kind": "failed", "sentence": "a\nb" + "c" * 2 * MAX_SENTENCE}
    failure = decode(canonical.encode(fields), 10_000, NodeFailure)
    assert isinstance(failure, NodeFailure)
    assert failure.sentence == ("a b" + "c" * 2 * MAX_SENTENCE)[:MAX_SENTENCE]
