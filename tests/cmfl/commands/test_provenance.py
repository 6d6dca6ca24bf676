"""`cmfl export attestation`, `crate` and `mlbom`, `cmfl verify attestation`: tools and attacks."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmfl.provenance.documents import (
    METADATA_FILE,
    DocumentKind,
    differences,
    json_bytes,
    read_document,
)
from cmfl.provenance.facts import RoundNotEndedError, RunFacts, read_facts
from cmfl.provenance.verify import verify_document
from cmfl.where import Target
from ledger.chain.contract.ledger import read_run_manifest
from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.server import RpcServer
from ledger.io.home import Home
from ledger.protocol.documents.envelope import Attestation, Envelope
from ledger.protocol.encoding import checksum
from ledger.protocol.signing import KeySigner, sign
from ledger.protocol.training_replay import ReplayVerdict, TrainingEnvironment
from ledger.protocol.types import ClientId, Digest
from ledger.storage.opening import mailbox_at
from tests.cmfl.commands.conftest import (
    KNOWN_AUDIT,
    ROUNDS,
    SHARED,
    audited,
    cmfl,
    decided_rounds,
    refusal,
    settings_of,
    succeeds,
)
from tests.faults import times

pytestmark = SHARED

EXPORTS = {"statement": ("attestation",), "ML-BOM": ("mlbom",), "RO-Crate": ("crate",)}
AUDITOR, LIAR = KeySigner(bytes([7] * 32)), KeySigner(bytes([9] * 32))
ENVIRONMENT = TrainingEnvironment("2.13.0", "plain", "x86_64", "avx2", "cpu", 1)

EACH = pytest.mark.parametrize("kind", EXPORTS)
KNOWN_FACTS = pytest.mark.usefixtures("_known_facts")
"""What the shared home leads to is read once; at issue is what is held against it."""


@pytest.fixture(scope="module")
def known() -> dict[str, RunFacts]:
    return {}


@pytest.fixture
def _known_facts(known: dict[str, RunFacts], monkeypatch: pytest.MonkeyPatch) -> None:
    def once(*given: object, **more: object) -> RunFacts:
        key = repr((given, more))
        if key not in known:
            known[key] = read_facts(*given, **more)  # type: ignore[arg-type]
        return known[key]

    monkeypatch.setattr("cmfl.provenance.verify.read_facts", once)


@pytest.fixture(scope="module")
def documents(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("documents")
    paths = {kind: folder / kind.replace(" ", "-") for kind in EXPORTS}
    for kind, words in EXPORTS.items():
        succeeds("export", *words, "--home", home, "--out", paths[kind])
    return paths


@pytest.fixture
def document(documents: dict[str, Path], kind: str, tmp_path: Path) -> Path:
    copy = tmp_path / "document"
    if documents[kind].is_dir():
        shutil.copytree(documents[kind], copy)
    else:
        shutil.copy(documents[kind], copy)
    return copy


def json_file(document: Path) -> Path:
    return document / METADATA_FILE if document.is_dir() else document


def verified(document: Path, home: Path, *more: object) -> tuple[int, dict[str, Any]]:
    result = cmfl("verify", "attestation", document, "--home", home, *more, "--json")
    assert not result.err, result
    return result.code, result.json


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of each value of a document that is no container."""
    if isinstance(value, dict):
        return [leaf for name, item in value.items() for leaf in leaves(item, (*path, name))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


def named(path: tuple[str | int, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


@EACH
def test_a_document_of_a_run_is_confirmed(
    kind: str, documents: dict[str, Path], home: Path
) -> None:
    code, result = verified(documents[kind], home)
    assert (code, result["outcome"], result["state"]) == (0, "passed", "current")
    assert (result["kind"], result["round"]) == (kind, ROUNDS)
    assert (result["differences"], result["notes"]) == ([], [])
    sentence = f"PASSED, current: {kind}: every field matches the run after round 5"
    assert result["sentence"] == sentence


def test_subjects_are_the_exported_file_and_the_blob(
    documents: dict[str, Path], home: Path, tmp_path: Path
) -> None:
    from hashlib import sha256

    out = tmp_path / "model.safetensors"
    model = succeeds("model", "export", "--home", home, "--out", out, "--json").json
    statement = json.loads(documents["statement"].read_text())
    file, blob = (subject["digest"]["sha256"] for subject in statement["subject"])
    assert file == sha256(out.read_bytes()).hexdigest()
    assert f"0x{blob}" == model["sha256"] == statement["predicate"]["model"]
    assert (documents["RO-Crate"] / "model.safetensors").read_bytes() == out.read_bytes()


def test_in_totos_parser_accepts_a_statement(documents: dict[str, Path]) -> None:
    from google.protobuf import json_format
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as Message

    parsed = json_format.Parse(documents["statement"].read_text(), Message())
    Statement.copy_from_pb(parsed).validate()


def test_cyclonedxs_strict_validator_accepts_an_mlbom(documents: dict[str, Path]) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    text = documents["ML-BOM"].read_text()
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"SHA-256"', '"SHA-257"')) is not None


def test_ro_crates_reader_accepts_a_crate(documents: dict[str, Path]) -> None:
    from rocrate.rocrate import ROCrate

    crate = ROCrate(documents["RO-Crate"])
    [action] = [each for each in crate.contextual_entities if each.type == "CreateAction"]
    assert crate.mainEntity.id == "model.safetensors"
    # What the profile for federated learning demands, for which there is no validator.
    assert crate.mainEntity in action["result"]
    assert crate.mainEntity in crate.data_entities
    assert action["instrument"].type == "SoftwareApplication"
    assert action["instrument"]["version"]
    assert any(each.type == "Dataset" for each in action["object"])
    assert [crate.get("attestation.json")] == [crate.mainEntity["subjectOf"]]
    assert [each["version"] for each in crate.root_dataset["conformsTo"]] == ["0.5", "0.1"]


@KNOWN_FACTS
@EACH
@settings(max_examples=times(6, 25), deadline=None)
@given(data=st.data())
def test_each_changed_field_is_named(
    kind: str, documents: dict[str, Path], home: Path, data: st.DataObject
) -> None:
    read = read_document(documents[kind])
    value = json.loads(json.dumps(read.value))
    path = data.draw(st.sampled_from(leaves(value)))
    holder = value
    for part in path[:-1]:
        holder = holder[part]
    old = holder[path[-1]]
    other = st.one_of(st.none(), st.booleans(), st.integers(-1, 9), st.text(max_size=4))
    holder[path[-1]] = data.draw(other.filter(lambda new: (type(new), new) != (type(old), old)))
    if path == ("_type",) or path[-1] in {"predicateType", "bomFormat"}:
        return  # what says of which kind it is
    result = verify_document(replace(read, value=value), Target(home), lambda: audited(home))
    assert str(result.state) in {"false", "foreign"}
    fields = {each.field for each in result.differences}
    assert named(path) in fields or fields & {"chain", "genesis", "contract"}


@KNOWN_FACTS
@KNOWN_AUDIT
@EACH
def test_unknown_and_missing_fields_are_named(kind: str, document: Path, home: Path) -> None:
    file = json_file(document)
    value = json.loads(file.read_text())
    value["note"] = {"deep": [1]}
    removed = {"ML-BOM": "metadata", "RO-Crate": "@context"}.get(kind, "subject")
    del value[removed]
    file.write_text(json.dumps(value))
    code, result = verified(document, home)
    fields = {each["field"]: each for each in result["differences"]}
    assert (code, result["state"]) == (1, "false")
    assert fields.keys() == {"note", removed}
    assert fields["note"] == {"field": "note", "recorded": "{...}", "derived": None}
    assert fields[removed]["recorded"] is None


@KNOWN_AUDIT
@EACH
def test_an_older_document_of_a_run_that_went_on_is_stale(
    kind: str, home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "older"
    number = decided_rounds(home)[0]["round"]
    succeeds("export", *EXPORTS[kind], "--home", home, "--round", number, "--out", out)
    code, result = verified(out, home)
    assert (code, result["state"], result["round"]) == (0, "stale", number)
    assert result["notes"] == [f"the newest round that has ended is {ROUNDS}"]


@pytest.fixture(scope="module")
def other_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    for number, name in enumerate(("one", "other"), 1):
        home = ("--home", folder / name, "--chain-id", number)
        succeeds("run", "--preset", "smoke", *home, *settings_of(), "--rounds", 1)
    succeeds("export", "crate", "--home", folder / "one", "--out", folder / "crate")
    return folder


def test_a_document_of_an_equal_run_is_foreign(other_home: Path) -> None:
    code, result = verified(other_home / "crate", other_home / "other")
    assert (code, result["outcome"], result["state"]) == (1, "failed", "foreign")
    assert {each["field"] for each in result["differences"]} >= {"chain"}
    assert verified(other_home / "crate", other_home / "one")[0] == 0


@pytest.mark.parametrize("kind", ["statement", "RO-Crate"])
def test_no_document_outlives_an_audit_that_fails(kind: str, document: Path, copy: Path) -> None:
    blob = record_of(copy)
    original = blob.read_bytes()
    blob.write_bytes(bytes(len(original)))
    code, result = verified(document, copy)
    assert (code, result["state"]) == (1, "false")
    assert any("record" in note for note in result["notes"])
    fields = {each["field"] for each in result["differences"]}
    if kind == "statement":
        assert "predicate.audit.outcome" in fields
    blob.unlink()
    code, result = verified(document, copy)
    assert (code, result["state"]) == (3, "unconfirmed")


def test_a_round_that_has_not_ended_is_false_of_a_file_alone(
    documents: dict[str, Path], home: Path, tmp_path: Path
) -> None:
    value = json.loads(documents["statement"].read_text())
    value["predicate"] |= {"round": 9, "head": f"0x{'11' * 32}"}
    file = tmp_path / "document"
    file.write_text(json.dumps(value))
    code, result = verified(file, home)
    assert (code, result["state"]) == (1, "false")
    assert "round 9 has not ended" in result["notes"][0]
    with EmbeddedReader.open(Home(home).chain) as chain, RpcServer(chain) as server:
        node = ["--rpc-url", server.url, "--chain-id", chain.chain_id, "--blobs", home / "blobs"]
        node += ["--address", value["predicate"]["contract"]]
        code, result = verified(file, home, *node)
        assert (code, result["state"]) == (3, "unconfirmed")
        assert verified(documents["statement"], home, *node)[1]["state"] == "current"


@KNOWN_AUDIT
def test_documents_need_no_torch(
    documents: dict[str, Path], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    succeeds("export", "crate", "--home", home, "--out", tmp_path / "crate")
    for document in (tmp_path / "crate", documents["statement"]):
        succeeds("verify", "attestation", document, "--home", home)


def test_without_safetensors_the_extra_is_named(
    documents: dict[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    sentence = refusal("verify", "attestation", documents["ML-BOM"], "--home", home)
    assert "need the extra [provenance]: pip install " in sentence


def test_nothing_is_written_about_a_run_that_fails(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = record_of(copy)
    blob.write_bytes(bytes(blob.stat().st_size))
    report = audited(copy)
    with monkeypatch.context() as patched:
        patched.setattr("cmfl.commands.audit.audited_with_progress", lambda *_: report)
        for words in EXPORTS.values():
            out = tmp_path / words[0]
            result = cmfl("export", *words, "--home", copy, "--out", out)
            assert result.code == 1
            assert "nothing was written" in result.err
            as_json = cmfl("export", *words, "--home", copy, "--out", out, "--json")
            assert (as_json.code, as_json.json["file"]) == (1, None)
            assert not out.exists()
    assert cmfl("export", "mlbom", "--home", copy, "--out", tmp_path / "mlbom").code == 1
    blob.unlink()
    assert cmfl("export", "mlbom", "--home", copy, "--out", tmp_path / "mlbom").code == 3


def test_rounds_that_end_after_the_audit_are_in_no_document(
    home: Path, documents: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may go on while it is audited."""
    earlier = replace(audited(home), rounds=3)
    monkeypatch.setattr("cmfl.commands.audit.audited_with_progress", lambda *_: earlier)
    out = ("--home", home, "--out", tmp_path / "out")
    succeeds("export", "attestation", *out)
    assert json.loads((tmp_path / "out").read_text())["predicate"]["round"] == 3
    assert "round 4 has not ended" in refusal("export", "attestation", *out, "--round", 4)
    code, result = verified(documents["statement"], home)
    assert (code, result["state"]) == (3, "unconfirmed")


def record_of(home: Path, round_number: int | None = None) -> Path:
    """Return the blob of a round's record, which no document is made of."""
    number = decided_rounds(home)[0]["round"] if round_number is None else round_number
    shown = succeeds("rounds", "show", number, "--home", home, "--json").json
    digest = str(shown["record"]["digest"])[2:]
    return home / "blobs" / digest[:2] / digest


@KNOWN_FACTS
@pytest.mark.parametrize("kind", ["RO-Crate"])
def test_a_crates_files_are_the_runs(
    kind: str, document: Path, documents: dict[str, Path], home: Path
) -> None:
    def fields() -> set[str]:
        result = verify_document(read_document(document), Target(home), lambda: audited(home))
        assert str(result.state) == "false"
        return {each.field for each in result.differences}

    def change(path: Path) -> None:
        data = bytearray((documents[kind] / path.name).read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    def remove(path: Path) -> None:
        path.unlink()

    def link(path: Path) -> None:
        path.unlink()
        path.symlink_to(documents[kind] / path.name)

    files = [path for path in sorted(document.iterdir()) if path.name != METADATA_FILE]
    ways = (change, remove, link)
    # Each file is changed, and each way is tried with one of them.
    for way, path in [*zip(itertools.cycle(ways), files), *((change, path) for path in files[1:])]:
        way(path)
        assert fields() == {path.name}, way
        path.unlink(missing_ok=True)
        shutil.copy(documents[kind] / path.name, path)
    (document / "more").mkdir()
    assert fields() == {"more"}


DEEP = b'{"@graph":' + b"[" * 100_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        pytest.param(DEEP, id="too deep"),
        b'{"bomFormat":"CycloneDX","bomFormat":"CycloneDX"}',
        b'{"_type":"https://in-toto.io/Statement/v1","predicateType":{}}',
        b'{"payloadType":"application/vnd.in-toto+json","payload":"?"}',
        b'{"payloadType":"text/plain","payload":"e30=","signatures":[]}',
        pytest.param(b" " * (16 << 20) + b"{}", id="too large"),
    ],
)
def test_what_is_no_document_is_refused(data: bytes, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "document"
    file.write_bytes(data)
    assert str(file) in refusal("verify", "attestation", file, "--home", home)


@KNOWN_FACTS
@KNOWN_AUDIT
@pytest.mark.parametrize(
    "value",
    [
        {"bomFormat": "CycloneDX", "metadata": {"component": {"properties": [1, {"name": []}]}}},
        {
            "_type": "https://in-toto.io/Statement/v1",
            "predicateType": "urn:cmfl-ledger:run:v1",
            "predicate": {"round": 10**30, "training": {"attestations": [{"round": True}, 3]}},
        },
    ],
)
def test_documents_of_other_shapes_are_false(
    value: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "document"
    file.write_text(json.dumps(value))
    code, result = verified(file, home)
    assert (code, result["state"]) == (1, "false")
    assert len(result["differences"]) <= 50


def attest(home: Path, verdict: ReplayVerdict, signer: KeySigner = AUDITOR) -> dict[str, Any]:
    """Put a verdict on the first update of a home into its mailbox; return it as it is listed."""
    run = read_run_manifest(Home(home).run("run"))
    shown = succeeds("coverage", "--home", home, "--json").json["updates"][0]
    number, client = shown["round"], ClientId(shown["client"])
    config = Digest(bytes.fromhex(run.config[2:]))
    body = Attestation(signer.address, config, verdict, ENVIRONMENT, Digest(bytes(32)), bytes(65))
    signature = sign(signer, run.domain(), body.statement(number, client))
    envelope = Envelope(run.domain(), number, client, replace(body, signature=signature))
    mailbox_at(str(home / "blobs")).put(envelope)
    words = {ReplayVerdict.SAME: "same", ReplayVerdict.OTHER: "other"}
    given_by = {"auditor": checksum(signer.address), "verdict": words[verdict]}
    return {"round": number, "client": int(client)} | given_by


@KNOWN_AUDIT
def test_listed_verdicts_are_those_of_the_mailbox(copy: Path, tmp_path: Path) -> None:
    listed = attest(copy, ReplayVerdict.SAME)
    out, filtered = tmp_path / "out", tmp_path / "filtered"
    succeeds("export", "attestation", "--home", copy, "--out", out)
    training = json.loads(out.read_text())["predicate"]["training"]
    assert training["attestations"] == [listed]
    assert (training["same"], training["other"]) == (1, 0)
    assert training["none"] == training["updates"] - 1
    assert verified(out, copy)[1]["state"] == "current"
    nobody = checksum(LIAR.address)
    succeeds("export", "mlbom", "--home", copy, "--out", filtered, "--auditor", nobody)
    code, result = verified(filtered, copy)
    assert (code, result["state"]) == (0, "current")
    assert "1 attestations that it does not list: 1 same, 0 other" in result["notes"][0]


@pytest.fixture(scope="module")
def attested(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with a verdict on its first update; nobody writes to it."""
    path = tmp_path_factory.mktemp("attested") / "home"
    shutil.copytree(home, path)
    attest(path, ReplayVerdict.SAME)
    return path


@KNOWN_AUDIT
@pytest.mark.parametrize("kind", EXPORTS)
def test_an_invented_verdict_is_never_confirmed(kind: str, attested: Path, tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    succeeds("export", *EXPORTS[kind], "--home", attested, "--out", out)
    assert verified(out, attested)[0] == 0
    elsewhere.mkdir()
    code, result = verified(out, attested, "--mailbox", elsewhere)
    assert (code, result["state"]) == (3, "unconfirmed")
    assert "1 attestations that it lists are not in the mailbox" in result["notes"][0]
    file = json_file(out)
    file.write_text(file.read_text().replace(checksum(AUDITOR.address), checksum(LIAR.address)))
    assert verified(out, attested)[0] == (1 if kind == "RO-Crate" else 3)


def test_wrong_options_are_refused_before_an_audit(
    home: Path, tmp_path: Path, documents: dict[str, Path]
) -> None:
    out = tmp_path / "out"
    for form in ("attestation", "mlbom"):
        assert "must be a file" in refusal("export", form, "--home", home, "--out", tmp_path)
    full = documents["RO-Crate"]
    assert "new or an empty folder" in refusal("export", "crate", "--home", home, "--out", full)
    assert "round 6 has not ended" in refusal(
        "export", "mlbom", "--home", home, "--out", out, "--round", 6
    )
    assert "No such file" in refusal("verify", "attestation", out, "--home", home)
    assert str(RoundNotEndedError(0, 0)) == "round 1 has not ended in a final block: none has"
    api = ("--api", "http://127.0.0.1:1")
    assert "serves blobs, not a chain" in refusal("export", "mlbom", "--out", out, *api)
    node = ("--rpc-url", "http://127.0.0.1:1", "--chain-id", 1, "--address", f"0x{'11' * 20}")
    sentence = refusal("verify", "attestation", full, *api, *node)
    assert "without signatures; name the mailbox" in sentence


def test_facts_need_no_file_of_the_run(home: Path, copy: Path) -> None:
    shutil.rmtree(copy / "runs")
    facts = read_facts(Target(home))
    assert read_facts(Target(copy, address=facts.contract)) == facts


@EACH
def test_strange_settings_and_times_are_written_as_json(kind: str, home: Path) -> None:
    from ledger.protocol.documents.run import encode_run

    facts = read_facts(Target(home))
    strange = {"model": {"name": 3, "options": []}, "data": [float("nan"), float("inf"), 2**64 - 1]}
    document = replace(facts.document, experiment=strange | {"deep": {"bytes": b"\0"}})
    changed = replace(
        facts, document=document, document_bytes=encode_run(document), ended=2**64 - 1
    )
    value = DocumentKind(kind).derive(changed)
    assert list(differences(json.loads(json_bytes(value)), value)) == []
    assert b"9999-12-31T23:59:59" in json_bytes(value) or kind == "statement"
