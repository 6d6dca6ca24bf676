"""A run on a restarted chain, whose id and contract address come again, takes nothing of the last.

The same owners' keys, another learning rate: everything that was signed for the first run is sent
into the second by a stranger, while real workers play it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clients.configuration import plain_values
from clients.federation.kinds import ChainKind, StoreKind
from clients.federation.settings import FederationSettings, Pace, suited
from ledger.actors.mailboxes.files import run_folder
from ledger.chain.contract.calls import CommitCall, DecideCall, ReportCall, decode_call, encode_call
from ledger.chain.contract.reverts import refusal
from ledger.chain.ports import TransactionRevertedError
from ledger.protocol.documents.envelope import EnvelopeKind, decode_envelope
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import (
    CommitmentNotSignedError,
    Refusal,
    StatementNotSignedError,
)
from ledger.protocol.ledger_state import EquivocationReport, RoundDecided, SignedStatement
from tests.chain.anvil import anvil_program

if TYPE_CHECKING:
    from pathlib import Path

    from clients.federation.federation import Federation
    from ledger.chain.contract.committee_ledger import CommitteeLedger
    from ledger.protocol.documents.envelope import Envelope
    from ledger.protocol.types import Domain

PACE = Pace(
    block_seconds=1.0,
    blocks_of_a_client=0.0,
    view_seconds=4,
    deadline_blocks=120,
    confirmations=1,
    poll_seconds=0.2,
)
PATIENCE_SECONDS = 120.0


def settings_of(home: Path, learning_rate: float) -> FederationSettings:
    own = ("protocol.rounds=3", "protocol.beacon=none", f"training.learning_rate={learning_rate}")
    return FederationSettings(
        home=home,
        configuration=suited(plain_values("smoke", settings=own), PACE),
        workers=3,
        chain=ChainKind.ANVIL,
        store=StoreKind.SERVED,
        pace=PACE,
        anvil=anvil_program(),
    )


def played(federation: Federation, ledger: CommitteeLedger, rounds: int) -> list[RoundDecided]:
    """Return the first rounds of a run, once they have ended; each has to be decided."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := ledger.outcomes(rounds, descending=False)) < rounds:
        assert time.monotonic() < deadline, [seat.status() for seat in federation.seats]
        time.sleep(0.2)
    events = [recorded.event for recorded in found]
    assert all(isinstance(event, RoundDecided) for event in events)
    return [event for event in events if isinstance(event, RoundDecided)]


@dataclass(frozen=True)
class Signed:
    """All that was signed in a run and that a stranger has seen.

    Attributes:
        domain: of the run.
        calls: call data of its transactions.
        mail: envelopes by what they carry.
    """

    domain: Domain
    calls: list[bytes]
    mail: dict[EnvelopeKind, list[tuple[bytes, Envelope]]]

    @classmethod
    def of(cls, federation: Federation) -> Signed:
        manifest, node = federation.manifest, federation.node
        calls = []
        for number in range(int(str(node.ask("eth_blockNumber")), 16) + 1):
            block: Any = node.ask("eth_getBlockByNumber", hex(number), True)
            calls += [
                bytes.fromhex(sent["input"][2:])
                for sent in block["transactions"]
                if sent["to"] == manifest.address.lower()
            ]
        domain = manifest.domain()
        mail: dict[EnvelopeKind, list[tuple[bytes, Envelope]]] = {}
        for path in sorted(federation.home.blobs.glob(f"{run_folder(domain)}/*/*/*")):
            envelope = decode_envelope(path.read_bytes(), domain)
            mail.setdefault(envelope.kind, []).append((path.read_bytes(), envelope))
        return cls(domain, calls, mail)


def refused(ledger: CommitteeLedger, data: bytes) -> type[Refusal]:
    """Return why the contract refuses call data."""
    try:
        ledger.chain.call(ledger.address, data)
    except TransactionRevertedError as error:
        return type(refusal(error))
    raise AssertionError("the contract takes it")


def replayed(signed: Signed, federation: Federation, ledger: CommitteeLedger) -> None:
    """Send all that was signed for another run, and expect every place to refuse it."""
    refusals = {}
    for data in signed.calls:
        call = decode_call(data)
        if isinstance(call, CommitCall | DecideCall) and call.round == 1:
            refusals.setdefault(type(call), set()).add(refused(ledger, data))
    # A decision is refused for the first thing that differs; its votes are tried below.
    assert refusals[CommitCall] == {CommitmentNotSignedError}
    assert len(refusals[DecideCall]) == 1

    votes = [e for kind in (EnvelopeKind.REQUEST, EnvelopeKind.REPLY) for _, e in signed.mail[kind]]
    statements = {}
    for envelope in votes:
        vote: Any = getattr(envelope.body, "request", None) or getattr(envelope.body, "reply", None)
        statements.setdefault(envelope.client, []).append(vote)
    for client, (vote, *_) in statements.items():
        first = SignedStatement(vote.vote, vote.signature)
        other = SignedStatement(
            type(vote.vote)(
                **{f: getattr(vote.vote, f) for f in vote.vote.__slots__} | {"result": sha256(b"")}
            ),
            vote.signature,
        )
        report = encode_call(ReportCall(EquivocationReport(client, first, other)))
        assert refused(ledger, report) is StatementNotSignedError
