"""Rows that nobody ran, of as many seeds and rounds as a test needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from clients.experiments.rows import CellRow, CellSeconds, ChainEvidence, ExperimentRows, final_of
from ledger.audit.report import AuditOutcome
from ledger.protocol.types import PROTOCOL_VERSION

SEEDS = (200, 201, 202)

EVIDENCE = ChainEvidence(
    chain_id=31337,
    address="0x" + "ab" * 20,
    head="0x" + "cd" * 32,
    verdict=AuditOutcome.PASSED,
    report="r.json",
    configuration="c.toml",
)

KINDS = {
    "BrainTorrent": "brain-torrent",
    "GossipFL": "gossip",
    "CMFL-I": "cmfl",
    "CMFL-II": "cmfl",
    "robust": "cmfl",
}


def cell(method: str, seed: int, accuracy: Sequence[float | None], **more: Any) -> CellRow:
    """Return a row of three clients; what is not given is nothing in particular."""
    rounds = len(accuracy)
    axes = more.get("axes", {})
    name = "__".join([method, *axes.values(), f"seed{seed}"])
    row = CellRow(
        cell=name,
        experiment="made-up",
        number=1,
        method=method,
        kind=KINDS.get(method, "federated"),  # type: ignore[arg-type]
        condition="clean",
        axes={},
        seed=seed,
        digest="0x00",
        learning_rate=0.1,
        protocol=PROTOCOL_VERSION,
        rounds=rounds,
        accuracy=tuple(accuracy),
        loss=(None,) * rounds,
        training_loss=(None,) * rounds,
        backdoor_success=(None,) * rounds,
        floor=0.1,
        final=final_of(accuracy),
        malicious_accepted=0.0,
        malicious_trained=(0,) * rounds,
        malicious_members=None,
        malicious_aggregated=(0,) * rounds,
        accepted_honest=1.0,
        times_aggregated=(0, 1, 2),
        samples=(10, 20, 30),
        malicious=(),
        client_accuracy=None,
        seconds=CellSeconds(wall=60.0, cpu=30.0),
    )
    return replace(row, **more)


def rows(cells: Iterable[CellRow]) -> ExperimentRows:
    return ExperimentRows(tuple(cells))


def constant(method: str, finals: Sequence[float], **more: Any) -> list[CellRow]:
    return [
        cell(method, seed, (final, final), **more)
        for seed, final in zip(SEEDS, finals, strict=False)
    ]
