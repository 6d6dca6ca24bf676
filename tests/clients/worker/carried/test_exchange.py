"""Messages of a carrier, and what a node makes of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.worker.carried import exchange as exchange_module
from clients.worker.carried.carrier import Carrier
from clients.worker.carried.exchange import (
    Collection,
    Delivery,
    NodeRefusal,
    decode_answer,
    decode_delivery,
    encode_answer,
    encode_delivery,
)
from clients.worker.carried.node import answer_carrier
from ledger.protocol import canonical
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import EncodingError
from ledger.protocol.payload import Payload
from ledger.storage.carried import CarriedObjects
from ledger.storage.folder import FolderObjects
from tests.clients.runs.flower.connected import ConnectedNodes

if TYPE_CHECKING:
    from pathlib import Path


def blob(data: bytes) -> str:
    name = sha256(data).hex()
    return f"{name[:2]}/{name}"


def mail(data: bytes, round_number: int = 1) -> str:
    return f"mail/1/{'a' * 40}/{'b' * 64}/{round_number}/2/{sha256(data).hex()}"


def _always(answer: bytes, _: bytes) -> bytes:
    return answer


PATHS = st.binary(max_size=8).flatmap(lambda data: st.sampled_from([blob(data), mail(data)]))
OBJECTS = st.dictionaries(PATHS, st.binary(max_size=32), max_size=5)
NAMED = st.lists(PATHS, max_size=5).map(tuple)


@given(delivery=st.builds(Delivery, OBJECTS, NAMED))
def test_deliveries_come_back_whole(delivery: Delivery) -> None:
    assert decode_delivery(encode_delivery(delivery)) == delivery


@given(answer=st.builds(Collection, OBJECTS, NAMED) | st.just(NodeRefusal("no such folder")))
def test_answers_come_back_whole(answer: Collection | NodeRefusal) -> None:
    assert decode_answer(encode_answer(answer)) == answer


@given(data=st.binary(max_size=100))
def test_other_bytes_are_refused(data: bytes) -> None:
    for decode in (decode_delivery, decode_answer):
        with pytest.raises(EncodingError):
            decode(data)


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "ab/../cd",
        f"aa/{'b' * 64}",
        f"mail/1/{'a' * 40}/{'b' * 64}/../2/{'c' * 64}",
        f"mail/1/{'a' * 40}/{'b' * 64}/1/2/{'c' * 64}/more",
        f"mail/01/{'a' * 40}/{'b' * 64}/1/2/{'c' * 64}",
        f"{blob(b'')}\n",
    ],
)
def test_paths_that_are_no_object_s_are_refused(path: str) -> None:
    fields = {"version": 1, "kind": "delivery", "objects": [b""], "named": []}
    assert decode_delivery(canonical.encode({**fields, "paths": [blob(b"")]})).objects
    with pytest.raises(EncodingError, match="no path"):
        decode_delivery(canonical.encode({**fields, "paths": [path]}))


def test_messages_over_the_limit_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    message = encode_delivery(Delivery({blob(b"data"): b"data"}))
    monkeypatch.setattr(exchange_module, "MAX_EXCHANGE_BYTES", len(message) - 1)
    with pytest.raises(EncodingError, match="over the bound"):
        decode_delivery(message)


def test_a_node_says_why_it_cannot_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for message in (b"nonsense", encode_answer(NodeRefusal("an answer"))):
        assert isinstance(decode_answer(answer_carrier(message, tmp_path)), NodeRefusal)
    delivery = encode_delivery(Delivery({mail(b"1"): b"1"}))
    refused = decode_answer(answer_carrier(delivery, tmp_path / "file"))
    assert isinstance(refused, NodeRefusal)


def test_only_what_is_wanted_and_genuine_is_taken(tmp_path: Path) -> None:
    objects = CarriedObjects(tmp_path)
    with pytest.raises(FileNotFoundError):
        objects.get(blob(b"wanted"), 100)
    delivery = Delivery(
        {
            blob(b"wanted"): b"wanted",
            blob(b"nobody asks"): b"nobody asks",
            mail(b"genuine"): b"genuine",
            mail(b"changed"): b"changes",
        }
    )
    answer_carrier(encode_delivery(delivery), tmp_path)
    assert objects.get(blob(b"wanted"), 100) == b"wanted"
    assert objects.wanted() == []
    assert [objects.has(path) for path in delivery.objects] == [True, False, True, False]


def test_what_goes_out_goes_out_until_the_carrier_has_it(tmp_path: Path) -> None:
    objects = CarriedObjects(tmp_path)
    objects.put(mail(b"mail"), Payload.of(b"mail"))
    objects.put(blob(b"blob"), Payload.of(b"blob"))
    for _ in range(2):
        answer = decode_answer(answer_carrier(encode_delivery(Delivery()), tmp_path))
        assert isinstance(answer, Collection)
        assert answer.objects == {blob(b"blob"): b"blob", mail(b"mail"): b"mail"}
    taken = encode_delivery(Delivery(taken=(blob(b"blob"), mail(b"mail"), blob(b"never put"))))
    assert decode_answer(answer_carrier(taken, tmp_path)) == Collection()
    assert objects.get(blob(b"blob"), 100) == b"blob"
    assert not objects.put(mail(b"mail"), Payload.of(b"mail"))


def test_old_mail_and_blobs_are_forgotten_with_a_new_round(tmp_path: Path) -> None:
    objects = CarriedObjects(tmp_path)
    for number in (1, 2, 3):
        model = b"model %d" % number
        with pytest.raises(FileNotFoundError):
            objects.get(blob(model), 100)
        brought = {mail(b"mail", number): b"mail", blob(model): model}
        answer_carrier(encode_delivery(Delivery(brought)), tmp_path)
        assert objects.has(blob(model))
    assert [objects.has(blob(b"model %d" % number)) for number in (1, 2, 3)] == [False, False, True]
    assert [objects.has(mail(b"mail", number)) for number in (1, 2, 3)] == [False, True, True]


def test_wrong_answers_and_names_do_not_stop_a_carrier(tmp_path: Path) -> None:
    named = encode_answer(Collection({mail(b"one"): b"other", mail(b"two"): b"two"}))
    answers = {1: b"nonsense", 2: encode_answer(NodeRefusal("a full disk")), 3: named}
    nodes = ConnectedNodes({node: partial(_always, data) for node, data in answers.items()})
    objects = FolderObjects(tmp_path)
    assert Carrier(nodes, objects, 1.0).exchange(1)
    assert objects.has(mail(b"two"))
    assert not objects.has(mail(b"one"))


def test_a_silent_node_does_not_hold_up_the_others(tmp_path: Path) -> None:
    answer = encode_answer(Collection({mail(b"mail"): b"mail"}))
    nodes = ConnectedNodes({1: lambda _: None, 2: lambda _: answer})
    carrier = Carrier(nodes, FolderObjects(tmp_path), 0.0)
    assert carrier.exchange(1)
    # It gets the mail in each exchange, until it has answered one.
    for _ in range(2):
        carrier.exchange(1)
        messages = [decode_delivery(data) for node, data in nodes.sent if node == 1]
        assert messages[-1].objects == {mail(b"mail"): b"mail"}


def test_mail_of_other_rounds_is_not_brought(tmp_path: Path) -> None:
    data = {mail(b"mail", number): b"mail" for number in (1, 2, 3, 4, 2**63)}
    nodes = ConnectedNodes({1: lambda _: encode_answer(Collection(data))})
    carrier = Carrier(nodes, FolderObjects(tmp_path), 1.0)
    carrier.exchange(3)
    nodes.nodes = {2: lambda _: encode_answer(Collection())}
    carrier.exchange(3)
    brought = decode_delivery(nodes.sent[-1][1]).objects
    assert sorted(brought) == sorted(mail(b"mail", number) for number in (2, 3, 4))


def test_a_carrier_begun_again_brings_what_the_first_has_kept(tmp_path: Path) -> None:
    data = {mail(b"mail"): b"mail"}
    nodes = ConnectedNodes({1: lambda _: encode_answer(Collection(data))})
    Carrier(nodes, FolderObjects(tmp_path), 1.0).exchange(1)
    nodes.nodes = {2: lambda _: encode_answer(Collection())}
    Carrier(nodes, FolderObjects(tmp_path), 1.0).exchange(1)
    assert decode_delivery(nodes.sent[-1][1]).objects == data
