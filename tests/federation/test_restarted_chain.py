"""A run on a restarted chain, whose id and contract address come again, takes nothing of the last.

The same owners' keys, another learning rate. While real workers play the second run, a stranger
sends everything into it that was signed for the first.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients.configuration.parsing import plain_values
from clients.datasets.own_samples import simulated_signers
from clients.testnet import ChainKind, StoreKind
from clients.testnet.network import (
    ANVIL_TEST_KEY,
    ChainPace,
    LocalNetwork,
    NetworkSettings,
    fitted_to_pace,
)
from cmfl.commands.options import KEY_VARIABLE
from ledger.audit.engine import audit
from ledger.audit.report import AuditOutcome
from ledger.chain.contract.abi import refusal
from ledger.chain.contract.codec import CommitCall, DecideCall, ReportCall, decode_call, encode_call
from ledger.chain.contract.deploy import connect
from ledger.chain.contract.ledger import CommitteeLedger, read_manifest
from ledger.chain.ports import TransactionRevertedError
from ledger.chain.round_ledger import RecordedEvent
from ledger.chain.rpc.rpc_chain import RpcChain
from ledger.io.home import Home
from ledger.protocol.documents.envelope import (
    Envelope,
    EnvelopeKind,
    Proposal,
    PublishedScores,
    Reply,
    decode_envelope,
)
from ledger.protocol.documents.record import decode_record
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ProtocolRefusal, RefusalCode
from ledger.protocol.ledger_state import (
    EquivocationReport,
    RoundDecided,
    SignedStatement,
    StatementKind,
    UpdatesCommitted,
)
from ledger.protocol.types import ClientId, Domain, DropoutReason, RefusalReason
from ledger.storage.blobs import FolderBlobs
from ledger.storage.http import UploadSigner
from ledger.storage.mailbox import run_folder
from tests.chain.anvil import anvil_program
from tests.chain.test_port_contract import anvil
from tests.cmfl.commands.conftest import succeeds
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.processes import Forks

PACE = ChainPace(
    block_seconds=1.0,
    blocks_of_a_client=0.0,
    view_seconds=3,
    deadline_blocks=100_000,
    confirmations=1,
    poll_seconds=0.2,
)
SEED = 3
LATENESS: frozenset[DropoutReason | RefusalReason] = frozenset(
    {
        DropoutReason.NO_COMMITMENT,
        DropoutReason.PAYLOAD_MISSING,
        RefusalReason.NO_USABLE_UPDATE,
        RefusalReason.OTHER_CLIENTS,
    }
)
"""What a slow machine alone brings onto the record."""


def settings_of(home: Path, learning_rate: float) -> NetworkSettings:
    sizes = ("protocol.clients=6", "protocol.active_rate=1.0", "protocol.committee_rate=0.5")
    own = (f"seed={SEED}", "protocol.rounds=1", f"training.learning_rate={learning_rate}", *sizes)
    predictable = "protocol.beacon=none"
    return NetworkSettings(
        home=home,
        configuration=fitted_to_pace(plain_values("smoke", settings=(*own, predictable)), PACE),
        workers=2,
        chain=ChainKind.ANVIL,
        store=StoreKind.SERVED,
        pace=PACE,
        anvil=anvil_program(),
        allow_predictable_seeds=True,
    )


def played(federation: LocalNetwork, ledger: CommitteeLedger, rounds: int) -> list[RoundDecided]:
    """Return the first rounds of a run once they have ended; each has to be decided."""

    def ended() -> list[RecordedEvent]:
        found = list(ledger.outcomes(rounds, descending=False))
        return found if len(found) == rounds else []

    seen = wait_until(ended, lambda: [seat.status() for seat in federation.seats])
    events = [recorded.event for recorded in seen]
    decided = [event for event in events if isinstance(event, RoundDecided)]
    assert decided == events
    return decided


@dataclass(frozen=True)
class Signed:
    domain: Domain
    calls: list[CommitCall | DecideCall]
    mail: list[tuple[bytes, Envelope]]

    @classmethod
    def of(cls, federation: LocalNetwork) -> Signed:
        manifest, node = federation.manifest, federation.node
        domain, calls = manifest.domain(), []
        for number in range(int(str(node.ask("eth_blockNumber")), 16) + 1):
            block: Any = node.ask("eth_getBlockByNumber", hex(number), True)
            for sent in block["transactions"]:
                if sent["to"] == manifest.address.lower():
                    call = decode_call(bytes.fromhex(sent["input"][2:]))
                    calls += [call] if isinstance(call, CommitCall | DecideCall) else []
        paths = sorted(federation.home.blobs.glob(f"{run_folder(domain)}/*/*/*"))
        mail = [path.read_bytes() for path in paths]
        return cls(domain, calls, [(data, decode_envelope(data, domain)) for data in mail])

    def statements(self) -> dict[tuple[ClientId, StatementKind], SignedStatement]:
        """Return one statement of each kind of each member, as a report of equivocation has it."""
        found: dict[tuple[ClientId, StatementKind], SignedStatement] = {}
        for _, envelope in self.mail:
            match envelope.body:
                case Proposal(signed):
                    kind = StatementKind.REQUEST
                    found[envelope.client, kind] = SignedStatement(signed.vote, signed.signature)
                case Reply(signed):
                    kind = StatementKind.REPLY
                    found[envelope.client, kind] = SignedStatement(signed.vote, signed.signature)
                case PublishedScores(signed=claim):
                    kind = StatementKind.SCORES
                    found[envelope.client, kind] = SignedStatement(claim.scores, claim.signature)
                case _:
                    pass
        return found


def refused(ledger: CommitteeLedger, data: bytes) -> RefusalCode:
    try:
        ledger.chain.call(ledger.address, data)
    except TransactionRevertedError as error:
        refused = refusal(error)
        assert isinstance(refused, ProtocolRefusal)
        return refused.code
    raise AssertionError("the contract takes it")


def sent_to_the_contract(signed: Signed, ledger: CommitteeLedger) -> None:
    """Expect the contract to take no commitment, decision or proof of another run."""
    commitments = [call for call in signed.calls if isinstance(call, CommitCall)]
    assert commitments
    for call in commitments:
        if call.round == ledger.state().round:
            assert refused(ledger, encode_call(call)) is RefusalCode.COMMITMENT_NOT_SIGNED
    decisions = [call for call in signed.calls if isinstance(call, DecideCall)]
    assert decisions
    for decision in decisions:
        assert isinstance(refused(ledger, encode_call(decision)), RefusalCode)
    statements = signed.statements()
    assert {kind for _, kind in statements} == set(StatementKind)
    for (client, kind), first in statements.items():
        other = b"another result"
        statement: Any = first.statement
        changed = "digest" if kind is StatementKind.SCORES else "result"
        second = replace(first, statement=replace(statement, **{changed: sha256(other)}))
        report = encode_call(ReportCall(EquivocationReport(client, first, second)))
        assert refused(ledger, report) is RefusalCode.STATEMENT_NOT_SIGNED


def sent_to_the_store(signed: Signed, federation: LocalNetwork) -> None:
    """Expect the store to take no upload of another run, and put its mail where the run's lies."""
    url = federation.seats[0].paths.mailbox
    domain = federation.manifest.domain()
    signers = simulated_signers(SEED, federation.clients)
    uploads = UploadSigner(signed.domain, signers[0], ClientId(0), round=1)
    with httpx.Client(timeout=PATIENCE_SECONDS) as store:
        for data, envelope in signed.mail[:5]:
            digest = sha256(data)
            mail = f"{run_folder(domain)}/{envelope.round}/{int(envelope.kind)}/{digest.hex()}"
            for path in (mail, f"{digest.hex()[:2]}/{digest.hex()}"):
                place = f"{url}/{path}"
                (header,) = uploads.authorizations(place, digest, len(data))
                answer = store.put(place, content=data, headers={"Authorization": header})
                assert answer.status_code in {401, 403}, answer.text
    # Its host may do what no client can.
    for data, envelope in signed.mail:
        kind = f"{envelope.round}/{int(envelope.kind)}"
        for run in (signed.domain, domain):
            folder = federation.home.blobs / run_folder(run) / kind
            folder.mkdir(parents=True, exist_ok=True)
            (folder / sha256(data).hex()).write_bytes(data)


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_signatures_of_one_run_are_invalid_for_the_next(forks: Forks, tmp_path: Path) -> None:
    with LocalNetwork(settings_of(tmp_path / "first", 0.5)) as first:
        first.start_workers()
        with first.reader() as reader:
            played(first, first.ledger(reader), 1)
        before, signed = first.manifest, Signed.of(first)
    assert {envelope.kind for _, envelope in signed.mail} == set(EnvelopeKind) - {
        EnvelopeKind.COMMITMENT,
        EnvelopeKind.ATTESTATION,
    }

    with LocalNetwork(settings_of(tmp_path / "second", 0.4)) as second:
        now = second.manifest
        assert (now.address, now.chain_id) == (before.address, before.chain_id)
        assert now.salt != before.salt
        with second.reader() as reader:
            ledger = second.ledger(reader)
            sent_to_the_contract(signed, ledger)
            sent_to_the_store(signed, second)
            second.start_workers()
            decided = played(second, ledger, 1)
            blobs = FolderBlobs(second.home.blobs)
            assert ledger.bans() == ()
            for event in decided:
                record = decode_record(blobs.get(event.record))
                dropouts = {one.reason for one in record.dropouts}
                refused_for = {one.reason for one in record.refused}
                assert dropouts | refused_for <= LATENESS, "some was missed, and none misread"
            assert audit(ledger, blobs).outcome is AuditOutcome.PASSED
            for seat in second.seats:
                assert seat.is_up() or seat.status()["is_finished"]


def test_a_run_resumes_despite_replayed_commitments_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, ANVIL_TEST_KEY.hex())
    commits: list[bytes] = []
    for name, rate in (("first", 0.5), ("second", 0.4)):
        home = tmp_path / name
        with contextmanager(anvil)(tmp_path) as chain:
            assert isinstance(chain, RpcChain)
            on_node = ("--rpc-url", str(chain.node), "--chain-id", chain.chain_id)
            settings = ("--set", "protocol.rounds=2", "--set", f"training.learning_rate={rate}")
            succeeds("deploy", "--home", home, "--preset", "smoke", *settings, *on_node)
            ledger = connect(chain, read_manifest(Home(home).run("run").manifest))
            for data in commits:
                assert refused(ledger, data) is RefusalCode.COMMITMENT_NOT_SIGNED
                with pytest.raises(TransactionRevertedError):
                    chain.send(ledger.address, data, 3_000_000)
            succeeds("run", "--resume", "--home", home, *on_node)
            decided = [recorded.event for recorded in ledger.outcomes(9, descending=False)]
            assert [type(event) for event in decided] == [RoundDecided, RoundDecided]
            blobs = FolderBlobs(Home(home).blobs)
            for event in decided:
                assert isinstance(event, RoundDecided)
                assert decode_record(blobs.get(event.record)).dropouts == ()
            commits += [
                chain.transaction(recorded.transaction_hash).input
                for recorded in ledger.round_events(1)
                if isinstance(recorded.event, UpdatesCommitted)
            ]
    assert commits
