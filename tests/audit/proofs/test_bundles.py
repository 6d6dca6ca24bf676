"""Rounds in bundles: checked with nothing but the file, and by what is wrong with them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.audit.checks.rounds import BASE_DIFFERS, BLOB_MISSING, MODEL_BEFORE_UNKNOWN
from ledger.audit.engine import audit
from ledger.audit.proofs.bundle_verification import (
    BundleChain,
    RoundVerification,
    export_bundle,
    verify_bundle,
)
from ledger.audit.proofs.container import BundleFile, container_parts, open_bundle
from ledger.audit.proofs.documents import BUNDLE, bundle_of, manifest_bytes, read_manifest
from ledger.audit.proofs.proof import RecordedBan, RoundBundle
from ledger.audit.proofs.recorded import TrustedContract, make_bundle, read_trusted_contract
from ledger.audit.proofs.verification import Caveat, StepName, Trusted, TrustedHead
from ledger.audit.report import AuditOutcome, AuditStep, StepOutcome
from ledger.chain.contract import abi
from ledger.chain.ports import LogQuery, NotServedError, TopicFilter
from ledger.protocol.errors import BlobMissingError, ConfigurationError, EncodingError
from ledger.protocol.ledger_state import RoundDecided
from ledger.protocol.types import ClientId, Digest
from ledger.storage.blobs import MemoryBlobs
from tests.audit.proofs.mutations import FUZZ, changed, paths
from tests.audit.runs import Deviation, Run

T = TypeVar("T")
AT_ONCE = 10
CASES = 300 * FUZZ


def checked(path: Path, trusted: Trusted | None) -> RoundVerification:
    with open_bundle(path) as found:
        return verify_bundle(read_manifest(found.manifest, found), found, trusted)


def not_ok(found: RoundVerification) -> list[StepName]:
    return [step.name for step in found.steps if step.is_ok is not True]


def test_every_round_passes_against_the_head_and_the_contract(
    exported: dict[int, Path], newest: TrustedHead, facts: dict[int, TrustedContract]
) -> None:
    for number, path in exported.items():
        for trusted in (newest, facts[number]):
            found = checked(path, trusted)
            assert found.outcome is AuditOutcome.PASSED, found.as_dict()
            assert found.sentence == f"PASSED: every check of round {number} passed"


def test_rounds_find_what_audits_find(
    honest: Run, exported: dict[int, Path], newest: TrustedHead
) -> None:
    """But for what is said of the whole run, or of what came after a round."""
    whole = audit(honest.ledger, honest.blobs)
    assert whole.outcome is AuditOutcome.PASSED
    found = [one for path in exported.values() for one in checked(path, newest).findings]
    assert found == [one for one in whole.findings if one.round is not None]


def test_nothing_is_proven_where_nothing_is_trusted(exported: dict[int, Path]) -> None:
    found = checked(exported[2], None)
    assert found.outcome is AuditOutcome.INCOMPLETE
    assert found.caveats == (Caveat.NOTHING_TRUSTED,)
    assert not_ok(found) == [StepName.HEAD, StepName.CONFIGURATION]
    other = checked(exported[2], TrustedHead(Digest(bytes(32))))
    assert not_ok(other) == [StepName.HEAD]


def test_short_bundle_reaches_its_models(honest: Run, facts: dict[int, TrustedContract]) -> None:
    # Round 3 was abandoned: round 4 began with the model of round 2.
    bundle = make_bundle(honest.ledger, honest.blobs, 4)
    assert [link.round for link in bundle.path.links] == [2, 3, 3, 4, 4]
    assert [one.round for one in bundle.earlier] == [2]
    found = verify_bundle(bundle, honest.blobs, facts[4])
    assert found.outcome is AuditOutcome.PASSED
    cut = replace(bundle.path, links=bundle.path.links[1:])
    with pytest.raises(EncodingError, match="does not reach the starting model of round 4"):
        verify_bundle(replace(bundle, path=cut, earlier=()), honest.blobs, facts[4])


def test_collusion_of_a_committee_is_named_as_by_the_audit(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path).play(Deviation(base=lambda base, _run: Digest(base[::-1])))
    path = tmp_path / "bundle.tar"
    assert export_bundle(run.ledger, run.blobs, 1, path).outcome is AuditOutcome.FAILED
    found = checked(path, read_trusted_contract(run.ledger, 1))
    assert found.outcome is AuditOutcome.FAILED
    first = found.audit[AuditStep.CERTIFICATES - 1].contradiction
    assert first is not None
    assert first.fact is BASE_DIFFERS
    assert not_ok(found) == []


def test_a_bundle_without_a_blob_is_incomplete_and_not_exported(
    honest: Run, exported: dict[int, Path], newest: TrustedHead, tmp_path: Path
) -> None:
    event = honest.ledger.round_events(1)[-1].event
    assert isinstance(event, RoundDecided)
    with exported[1].open("rb") as file:
        found = BundleFile(file)
        bundle = read_manifest(found.manifest, found)
        whole = {digest: found.get(digest) for digest in found.digests()}
    path = tmp_path / "bundle.tar"
    for gone, step, need in (
        (event.model, AuditStep.BLOBS, BLOB_MISSING),
        (event.record, AuditStep.BLOBS, BLOB_MISSING),
        (honest.document.initial_model, AuditStep.MODEL, MODEL_BEFORE_UNKNOWN),
    ):
        blobs = MemoryBlobs()
        for digest, data in whole.items():
            if digest != gone:
                blobs.put(data)
        result = verify_bundle(bundle, blobs, newest)
        assert result.outcome is AuditOutcome.INCOMPLETE
        assert result.audit[step - 1].outcome is StepOutcome.NOT_CHECKABLE
        assert need in {one.need for one in result.audit[step - 1].missing}
        with pytest.raises(BlobMissingError, match=r"round 1 cannot be exported: "):
            export_bundle(honest.ledger, blobs, 1, path)
        assert not path.exists()


def test_needless_blob_is_named(
    exported: dict[int, Path], newest: TrustedHead, tmp_path: Path
) -> None:
    blobs = MemoryBlobs()
    with exported[1].open("rb") as file:
        found = BundleFile(file)
        digests = [blobs.put(found.get(digest)) for digest in found.digests()]
    digests.append(blobs.put(b"smuggled"))
    path = tmp_path / "more.tar"
    path.write_bytes(b"".join(container_parts(found.manifest, digests, blobs)))
    result = checked(path, newest)
    assert result.outcome is AuditOutcome.FAILED
    assert not_ok(result) == [StepName.PARTS]


def test_an_open_round_has_no_bundle(tmp_path: Path) -> None:
    run = Run.on_revm(tmp_path)
    with pytest.raises(ConfigurationError, match="round 1 has not ended"):
        make_bundle(run.ledger, run.blobs, 1)
    with pytest.raises(ConfigurationError, match="round 2 has not opened"):
        make_bundle(run.ledger, run.blobs, 2)


def test_logs_of_a_bundle_are_in_chain_order(honest: Run) -> None:
    true = make_bundle(honest.ledger, honest.blobs, 2)
    assert read_manifest(manifest_bytes(true), honest.blobs) == true
    first, second, *others = true.logs
    for logs in ((first, first, second, *others), (second, first, *others)):
        wrong = manifest_bytes(replace(true, logs=logs))
        with pytest.raises(EncodingError, match="logs are not in the order of blocks and log ind"):
            read_manifest(wrong, honest.blobs)
    opened = manifest_bytes(replace(true, opened_block=first.block_number + 1))
    with pytest.raises(EncodingError, match=f"a log of block {first.block_number} is before block"):
        read_manifest(opened, honest.blobs)


def test_the_first_model_of_round_is_in_the_previous_decision(honest: Run) -> None:
    true = make_bundle(honest.ledger, honest.blobs, 2)
    assert true.model_at(2) == honest.outcome(1).model
    with pytest.raises(EncodingError, match="the parts of the result of round 1 are not"):
        replace(true, earlier=()).model_at(2)


def test_a_bundle_of_an_impossible_round_is_not_read(honest: Run) -> None:
    true = make_bundle(honest.ledger, honest.blobs, 2)
    late = replace(true, bans=(RecordedBan(2, ClientId(0)),))
    with pytest.raises(EncodingError, match="a ban in round 2 is not before round 2"):
        read_manifest(manifest_bytes(late), honest.blobs)


def test_places_elsewhere_are_named(honest: Run, facts: dict[int, TrustedContract]) -> None:
    true = make_bundle(honest.ledger, honest.blobs, 2)
    last = true.logs[-1]
    moved = replace(true, logs=(*true.logs[:-1], replace(last, log_index=last.log_index + 1)))
    assert not_ok(verify_bundle(moved, honest.blobs, facts[2])) == [StepName.EVENT_PLACES]
    early = replace(true, opened_block=true.opened_block - 1)
    assert StepName.OPENED_BLOCK in not_ok(verify_bundle(early, honest.blobs, facts[2]))


def test_another_model_before_round_is_not_the_voted_one(honest: Run, newest: TrustedHead) -> None:
    true = make_bundle(honest.ledger, honest.blobs, 2, whole=True)
    model = honest.blobs.put(np.zeros(8, dtype="<f4").tobytes())
    earlier = replace(true.earlier[0], model=model)
    found = verify_bundle(replace(true, earlier=(earlier,)), honest.blobs, newest)
    assert found.outcome is AuditOutcome.FAILED
    assert not_ok(found) == [StepName.EARLIER_RESULT]


@pytest.fixture(scope="module")
def documents(honest: Run) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Bundles as plain data, and what checking them says when they are true."""
    found = []
    for number in (3, 2):
        bundle = make_bundle(honest.ledger, honest.blobs, number, whole=True)
        trusted = TrustedHead(honest.ledger.state().head)
        found.append((BUNDLE.write(bundle), said(verify_bundle(bundle, honest.blobs, trusted))))
    return found


@settings(max_examples=CASES // AT_ONCE)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_changed_bundle_passes_and_says_anything_but_the_truth(
    honest: Run,
    documents: list[tuple[dict[str, Any], dict[str, Any]]],
    newest: TrustedHead,
    facts: dict[int, TrustedContract],
    seed: int,
) -> None:
    rng = random.Random(seed)
    document, truth = rng.choice(documents)
    for path in rng.choices(list(paths(document)), k=AT_ONCE):
        other = changed(document, path, rng)
        trusted = rng.choice((newest, facts[document["round"]]))
        try:
            found = verify_bundle(bundle_of(other, honest.blobs), honest.blobs, trusted)
        except EncodingError:
            continue
        assert json.dumps(found.as_dict(), allow_nan=False)
        if found.outcome is AuditOutcome.PASSED and other != document:
            assert is_named(path, found), path
            assert said(found) == truth, path


def is_named(path: Sequence[Any], found: RoundVerification) -> bool:
    """Return whether a verification names a place of the document as not checked."""
    place = ".".join(part for part in path if isinstance(part, str)) + "."
    fields = [f"{one.field}." for one in found.unchecked]
    return any(place.startswith(field) or field.startswith(place) for field in fields)


def said(found: RoundVerification) -> dict[str, Any]:
    whole = found.as_dict()
    return {name: whole[name] for name in ("round", "audit", "findings", "counts")}


def test_blocks_outside_a_bundle_are_not_served_as_a_chain(honest: Run) -> None:
    bundle = make_bundle(honest.ledger, honest.blobs, 2)
    with BundleChain(bundle).snapshot() as chain:
        assert chain.chain_id == honest.chain.chain_id
        assert chain.genesis_hash == honest.chain.genesis_hash
        assert chain.finalized() == chain.head().number == bundle.blocks[-1].number
        committed = chain.logs(LogQuery(None, [abi.topic("UpdatesCommitted")], 0, 2**53))
        assert committed == list(bundle.logs[:2])
        decided: list[TopicFilter] = [[abi.topic("RoundDecided")], (2).to_bytes(32)]
        assert chain.logs(LogQuery(honest.ledger.address, decided, 0, 2**53)) == [bundle.logs[2]]
        assert chain.logs(LogQuery(None, [None] * 5, 0, 2**53)) == []
        assert chain.logs(LogQuery(None, [], 0, 2**53, 1, descending=True)) == [bundle.logs[-1]]
        for asked in (
            lambda: chain.block(0),
            lambda: chain.transaction(bytes(32)),
            lambda: chain.receipt(bytes(32)),
            lambda: chain.call(honest.ledger.address, b""),
            lambda: chain.code(honest.ledger.address),
        ):
            with pytest.raises(NotServedError, match=r"in a bundle|in the bundle"):
                asked()


def test_a_manifest_is_read_back_as_it_was_written(honest: Run) -> None:
    bundle: RoundBundle = make_bundle(honest.ledger, honest.blobs, 4, whole=True)
    assert read_manifest(manifest_bytes(bundle), honest.blobs) == bundle
    with pytest.raises(EncodingError, match=r"configuration: blob .* is missing"):
        read_manifest(manifest_bytes(bundle), MemoryBlobs())
