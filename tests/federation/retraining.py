"""Whether every honest update is what training from the chain's model comes to, bit for bit.

What a worker says of the model that it holds proves nothing. Its update does: the same model, data
and seed give the same bytes in every process of a machine, and any other model gives others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from clients.configuration.parsing import configuration_from_document
from clients.datasets.own_samples import own_parts
from clients.models.registry import model_named
from clients.training.engine_factory import open_engine
from clients.training.port import Engine, TrainingJob
from ledger.audit.anchors import EarlierAudit
from ledger.audit.engine import audit
from ledger.audit.report import AuditReport
from ledger.chain.contract.deploy import deployed_document
from ledger.chain.contract.ledger import CommitteeLedger
from ledger.history.history import FoldedHistory
from ledger.history.round import read_documents
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import vector_from_bytes
from ledger.protocol.errors import ChainError
from ledger.protocol.inputs import training_seed
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import BlobReader


class Retraining:
    def __init__(self, ledger: CommitteeLedger, blobs: BlobReader) -> None:
        self._ledger = ledger
        self._blobs = blobs
        found = ledger.deployment()
        self._models: dict[int, Digest] = {}
        self.begins_with(1, found.model)
        self._document = deployed_document(blobs.get(found.config), found)
        self._engine = _engine(self._document)

    def begins_with(self, number: int, model: Digest) -> None:
        self._models[number] = model

    def differing(self, number: int, liars: Collection[ClientId]) -> tuple[ClientId, ...]:
        """Return whose recorded update does not follow from the model that the chain names."""
        before = self._models[number]
        one = FoldedHistory.of(self._ledger, self._blobs).round(number)
        assert one is not None, "it has ended"
        self.begins_with(number + 1, before if one.decided is None else one.decided.model)
        record = read_documents(self._blobs, one).record
        if record is None:
            return ()
        model = vector_from_bytes(self._blobs.get(before), self._document.parameters.dimension)
        honest = {c: digest for c, digest in record.payloads().items() if c not in liars}
        jobs = [TrainingJob(int(c), training_seed(one.seed, c)) for c in honest]
        trained = self._engine.train(model, jobs)
        digests = {ClientId(update.client): update.payload.digest for update in trained}
        return tuple(c for c, digest in honest.items() if digests[c] != digest)

    def close(self) -> None:
        self._engine.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self._engine.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _engine(document: RunDocument) -> Engine:
    configuration = configuration_from_document(document)
    clients = [ClientId(client) for client in range(len(document.registry))]
    data = own_parts(configuration, document, clients)
    model = model_named(configuration.model.name, data.form, configuration.model.options)
    path = configuration.training.path
    assert path != "auto", "a run document settles it"
    return open_engine(
        model,
        data,
        configuration.training,
        device="cpu",
        workers=1,
        path=path,
        sets={},
        rows=document.parameters.active,
    )


@dataclass(frozen=True, slots=True)
class Inspected:
    report: AuditReport
    differing: dict[int, tuple[ClientId, ...]]


class Inspection:
    def __init__(self, ledger: CommitteeLedger, blobs: BlobReader) -> None:
        self._ledger = ledger
        self._blobs = blobs
        self._threads = ThreadPoolExecutor(1)
        self._running: Future[Inspected | None] | None = None
        self._retraining: Retraining | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def begin(
        self, earlier: EarlierAudit | None, rounds: range, liars: Mapping[int, frozenset[ClientId]]
    ) -> None:
        assert self._running is None, "one at a time"
        self._running = self._threads.submit(self._inspected, earlier, rounds, dict(liars))

    def taken(self, *, waits: bool = False) -> Inspected | None:
        """Return what it came to; None while it runs, or if the node did not answer."""
        running = self._running
        if running is None or not (waits or running.done()):
            return None
        self._running = None
        return running.result()

    def close(self) -> None:
        self._threads.shutdown()
        if self._retraining is not None:
            self._retraining.close()

    def _inspected(
        self, earlier: EarlierAudit | None, rounds: range, liars: Mapping[int, frozenset[ClientId]]
    ) -> Inspected | None:
        try:
            report = audit(self._ledger, self._blobs, earlier=earlier)
            if self._retraining is None:
                self._retraining = Retraining(self._ledger, self._blobs)
            differing = {
                number: self._retraining.differing(number, liars.get(number, frozenset()))
                for number in rounds
            }
        except ChainError:
            return None  # the node is being restarted; the next one takes these rounds too
        return Inspected(report, differing)
