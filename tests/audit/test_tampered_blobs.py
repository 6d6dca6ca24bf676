"""Blobs: changed ones fail the audit by name, deleted ones make it incomplete by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from ledger.audit.audit import audit, readable
from ledger.blobs.store import MAX_BLOB_BYTES
from ledger.protocol.documents import decode_record, encode_run
from ledger.protocol.errors import BlobMissingError
from ledger.protocol.ledger_state import RoundDecided, UpdatesCommitted

if TYPE_CHECKING:
    from ledger.audit.report import AuditReport
    from ledger.blobs.store import BlobReader
    from ledger.protocol.types import ClientId, Digest
    from tests.audit.play import Game


@dataclass
class ChangedBlobs:
    """A store that gives other bytes for some blobs, unverified; None for a deleted one."""

    blobs: BlobReader
    changed: dict[Digest, bytes | None]

    def get(self, digest: Digest, limit: int = MAX_BLOB_BYTES) -> bytes:
        if digest not in self.changed:
            return self.blobs.get(digest, limit)
        data = self.changed[digest]
        if data is None:
            raise BlobMissingError(f"blob {digest.hex()} is missing")
        return data

    def has(self, digest: Digest) -> bool:
        return self.changed.get(digest, b"") is not None and self.blobs.has(digest)


def kinds(game: Game) -> dict[str, list[Digest]]:
    """Return the blobs of each kind that the audit reads, in the order of rounds."""
    recorded = game.ledger.events(0, game.chain.head().number)
    events = [r.event for r in recorded if isinstance(r.event, RoundDecided)]
    commits = [r.event for r in recorded if isinstance(r.event, UpdatesCommitted)]
    records = [decode_record(game.blobs.get(event.record)) for event in events]
    dropped = {c for c, why in records[0].dropouts if why == "payload malformed"}
    stray = {c for event in commits for c in event.clients[-1:] if event.round == 2}
    committed = [
        (event.round, client, payload)
        for event in commits
        for client, payload in zip(event.clients, event.payloads, strict=True)
        if not (event.round == 2 and client in stray)
    ]
    return {
        "configuration": [game.ledger.deployment().config],
        "first model": [game.document.initial_model],
        "model": [event.model for event in events],
        "record": [event.record for event in events],
        "payload": [p for t, c, p in committed if t != 3 and not (t == 1 and c in dropped)],
        "malformed payload": [p for t, c, p in committed if t == 1 and c in dropped],
        "score vector": [s.scores.digest for record in records for s in record.scores],
        "refused score vector": [r.signed.scores.digest for rec in records for r in rec.refused],
    }


KINDS = (
    "configuration",
    "first model",
    "model",
    "record",
    "payload",
    "malformed payload",
    "score vector",
    "refused score vector",
)


def with_blob(game: Game, digest: Digest, data: bytes | None) -> AuditReport:
    return audit(game.ledger, ChangedBlobs(game.blobs, {digest: data}))


def failing(report: AuditReport) -> set[int]:
    return {step.number for step in report.steps if step.outcome == "failed"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_blob_of_any_kind_fails_step_5_and_is_named(honest: Game, kind: str) -> None:
    digests = kinds(honest)[kind]
    assert digests
    for number, digest in enumerate(digests):
        data = honest.blobs.get(digest)
        flipped = bytes([data[0] ^ 1]) + data[1:]
        others = (data[:-1], data + b"\0", b"", bytes(len(data)))
        for wrong in (flipped, *others)[: 5 if number < 2 else 1]:
            report = with_blob(honest, digest, wrong)
            assert failing(report) == {5}, readable(report)
            contradiction = report.steps[4].contradiction
            assert contradiction is not None
            assert digest.hex() in contradiction.sentence


@pytest.mark.parametrize("kind", ["model", "record", "payload", "score vector"])
def test_a_blob_in_the_place_of_another_of_its_kind_fails_step_5(honest: Game, kind: str) -> None:
    one, other = kinds(honest)[kind][:2]
    assert failing(with_blob(honest, one, honest.blobs.get(other))) == {5}


def test_another_configuration_in_the_place_of_the_true_one_fails_step_5(honest: Game) -> None:
    parameters = replace(honest.document.parameters, server_rate=2.0)
    other = encode_run(replace(honest.document, parameters=parameters))
    assert failing(with_blob(honest, honest.ledger.deployment().config, other)) == {5}


@pytest.mark.parametrize("kind", KINDS)
def test_a_deleted_blob_of_any_kind_makes_the_audit_incomplete_and_is_named(
    honest: Game, kind: str
) -> None:
    for digest in kinds(honest)[kind]:
        report = with_blob(honest, digest, None)
        assert (report.outcome, report.ok) == ("incomplete", True), readable(report)
        missing = " ".join(report.steps[4].missing)
        if kind != "malformed payload":
            assert digest.hex() in missing
        assert "missing" in missing
        assert readable(report)[-1].startswith("INCOMPLETE")


def test_a_missing_payload_leaves_only_its_own_steps_open(honest: Game) -> None:
    event = next(
        r.event
        for r in honest.ledger.events(0, honest.chain.head().number)
        if isinstance(r.event, RoundDecided) and r.event.round == 4
    )
    client = event.accepted[0]
    payload = _payload(honest, 4, client)
    report = with_blob(honest, payload, None)
    outcomes = {step.number: step.outcome for step in report.steps}
    open_steps = {number for number, outcome in outcomes.items() if outcome == "not checkable"}
    assert open_steps == {5, 6, 9}
    assert any(f"client {client}" in what for what in report.steps[5].missing)
    assert any(str(client) in what for what in report.steps[8].missing)


def test_a_missing_model_is_recomputed_where_its_parts_are_there(honest: Game) -> None:
    second = kinds(honest)["model"][1]
    report = with_blob(honest, second, None)
    open_steps = {s.number for s in report.steps if s.outcome == "not checkable"}
    assert open_steps == {5}


def test_without_any_blob_the_chain_alone_still_holds(honest: Game) -> None:
    everything = [digest for digests in kinds(honest).values() for digest in digests]
    report = audit(honest.ledger, ChangedBlobs(honest.blobs, dict.fromkeys(everything)))
    outcomes = [step.outcome for step in report.steps]
    assert outcomes[1:4] == ["passed"] * 3
    assert report.outcome == "incomplete"
    assert report.rounds == 5


def _payload(game: Game, round_number: int, client: ClientId) -> Digest:
    for recorded in game.ledger.round_events(round_number):
        if isinstance(recorded.event, UpdatesCommitted):
            return dict(zip(recorded.event.clients, recorded.event.payloads, strict=True))[client]
    raise AssertionError
