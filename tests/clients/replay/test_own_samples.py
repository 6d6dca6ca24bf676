"""Samples of owners' own, repeated: tied to a client by their salted digest, or not tied at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clients.configuration.parsing import configuration_from_document
from clients.datasets.federated_data import named_stream, parse_settings
from clients.datasets.own import OwnOptions, read_own
from clients.datasets.own_samples import own_parts, samples_digest_of
from clients.models.registry import model_named
from clients.registration import combined_registry, proposal_digest, signed_entry
from clients.replay.replay_inputs import RecordedRun, RecordedUpdate, ReplayRequest, RoundToRepeat
from clients.replay.results import ReplayedUpdate, TrainingReplay
from clients.replay.training_replay import replay_run
from clients.training.engine_factory import open_engine
from clients.training.port import TrainingJob
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import commitment_of, sha256, vector_bytes
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.inputs import training_seed
from ledger.protocol.signing import data_salt
from ledger.protocol.types import NO_DIGEST, Address, ClientId, Digest, Domain
from ledger.storage.blobs import MemoryBlobs
from tests.clients.onboarding.owners import RUN, agreed, document_of, owner, owner_of, samples_file
from tests.clients.replay.support import NOT_CHECKABLE, OTHER, SAME, here

UNDISCLOSED = 2
SEED = Digest(sha256(b"a round"))


@dataclass(frozen=True)
class Federation:
    folder: Path
    run: RecordedRun
    blobs: MemoryBlobs

    def file(self, client: ClientId, suffix: str = ".npz") -> Path:
        return self.folder / f"0x{self.run.document.registry[client].address.hex()}{suffix}"

    def repeated(
        self, path: Path | None, *clients: ClientId, salts: Any = None
    ) -> tuple[ReplayedUpdate, ...]:
        (round_,) = self.run.rounds
        chosen = tuple(u for u in round_.updates if not clients or u.client in clients)
        rounds = (RoundToRepeat(1, SEED, round_.model, chosen, ()),)
        run = RecordedRun(self.run.domain, self.run.document, rounds)
        request = ReplayRequest(data=path, salts=salts or {})
        return replay_run(run, self.blobs, request, lambda *_: here("lockstep")).updates


def entries(folder: Path) -> RunDocument:
    options = parse_settings(OwnOptions, agreed().data.options, "data.options")
    signed = []
    for number in range(6):
        signer = owner(number)
        file = samples_file(folder / f"0x{signer.address.hex()}.npz", 10 + number)
        salt = data_salt(signer)
        file.with_suffix(".salt").write_text(f"0x{salt.hex()}\n")
        data = samples_digest_of(read_own(file, options).train, salt)
        data = NO_DIGEST if number == UNDISCLOSED else data
        configured = proposal_digest(agreed())
        signed.append((str(number), signed_entry(signer, RUN, configured, 10 + number, data)))
    return document_of(combined_registry(signed))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    folder = tmp_path_factory.mktemp("owners")
    document = entries(folder)
    configuration = configuration_from_document(document)
    path = configuration.training.path
    assert path == "lockstep"
    updates = []
    blobs = MemoryBlobs()
    starts = set()
    for client in map(ClientId, range(6)):
        # Each on a machine of its own, with nobody else's samples.
        data = own_parts(configuration, document, (client,), folder)
        model = model_named(configuration.model.name, data.form)
        start = model.initial(named_stream(configuration.seed, "model"))
        starts.add(blobs.put(vector_bytes(start)))
        with open_engine(
            model, data, configuration.training,
            device="cpu", workers=1, path=path, sets={}, rows=1,
        ) as engine:  # fmt: skip
            (update,) = engine.train(start, [TrainingJob(client, training_seed(SEED, client))])
            commitment = commitment_of(client, update.payload.digest)
        updates.append(RecordedUpdate(client, commitment, None))
    rounds = (RoundToRepeat(1, SEED, document.initial_model, tuple(updates), ()),)
    assert starts == {document.initial_model}
    domain = Domain(1, Address(bytes(20)), NO_DIGEST)
    return Federation(folder, RecordedRun(domain, document, rounds), blobs)


def client_of(federation: Federation, number: int) -> ClientId:
    registry = federation.run.document.registry
    return next(
        ClientId(i) for i, client in enumerate(registry) if owner_of(client.address) == number
    )


def test_an_auditor_repeats_all_owners_together(federation: Federation) -> None:
    assert {update.verdict for update in federation.repeated(federation.folder)} == {SAME}


def test_an_owner_repeats_its_own_update(federation: Federation) -> None:
    client = client_of(federation, 0)
    salts = {client: data_salt(owner(0))}
    (update,) = federation.repeated(federation.file(client), client, salts=salts)
    assert update.verdict is SAME


def test_another_clients_samples_are_named_and_the_others_repeated(
    federation: Federation, tmp_path: Path
) -> None:
    for file in federation.folder.iterdir():
        os.link(file, tmp_path / file.name)
    wrong, truncated = (client_of(federation, number) for number in (1, 3))
    replaced = tmp_path / federation.file(wrong).name
    replaced.unlink()
    samples_file(replaced, 11, seed=99)
    cut = tmp_path / federation.file(truncated).name
    content = cut.read_bytes()
    cut.unlink()
    cut.write_bytes(content[:-40])
    updates = federation.repeated(tmp_path)
    bad = {u.client: u for u in updates if u.verdict is not SAME}
    assert bad.keys() == {wrong, truncated}
    assert {update.verdict for update in bad.values()} == {NOT_CHECKABLE}
    assert "digest" in bad[wrong].reason
    assert bad[wrong].losses is None


@pytest.mark.parametrize("number", [0, UNDISCLOSED])
def test_samples_tied_to_no_client_prove_nothing_against_it(
    federation: Federation, tmp_path: Path, number: int
) -> None:
    client = client_of(federation, number)
    assert federation.repeated(federation.file(client), client)[0].verdict is SAME
    strange = samples_file(tmp_path / "strange.npz", 10 + number, seed=99)
    (update,) = federation.repeated(strange, client)
    assert update.verdict is NOT_CHECKABLE
    assert "digest" in update.reason


def test_a_forged_update_is_other_by_the_owners_true_samples(federation: Federation) -> None:
    client = client_of(federation, 0)
    (round_,) = federation.run.rounds
    forged = (RecordedUpdate(client, NO_DIGEST, None),)
    rounds = (RoundToRepeat(1, SEED, round_.model, forged, ()),)
    run = RecordedRun(federation.run.domain, federation.run.document, rounds)
    lying = Federation(federation.folder, run, federation.blobs)
    assert lying.repeated(federation.folder)[0].verdict is OTHER


def test_missing_files_and_salts_that_are_none_are_named(federation: Any, tmp_path: Path) -> None:
    client = client_of(federation, 0)
    updates = federation.repeated(None)
    assert updates[0].reason.startswith("data not given")
    report = TrainingReplay(federation.run.domain, here("lockstep"), "nothing", updates)
    assert [line for line in report.lines() if "data not given" in line] == [
        f"6 updates not checkable: {updates[0].reason}"
    ]
    assert f"has no 0x{owner(0).address.hex()}" in federation.repeated(tmp_path, client)[0].reason
    with pytest.raises(ConfigurationError, match="one file for 6 clients"):
        federation.repeated(federation.file(client))
    with pytest.raises(ConfigurationError, match="no such file"):
        federation.repeated(tmp_path / "nowhere", client)
    os.link(federation.file(client), tmp_path / federation.file(client).name)
    (tmp_path / federation.file(client, ".salt").name).write_text("too short")
    (update,) = federation.repeated(tmp_path, client)
    assert update.verdict is NOT_CHECKABLE
    assert "64 hex digits" in update.reason
