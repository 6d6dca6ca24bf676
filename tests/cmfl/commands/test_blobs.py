"""`cmfl blobs`: what a round has published, what of it may go, and the store that is served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from ledger.chain.embedded.reader import EmbeddedReader
from ledger.protocol.documents.envelope import Envelope, PublishedPayload
from ledger.protocol.types import Address, ClientId, Digest, Domain
from ledger.storage.blobs import FolderBlobs, FolderObjects
from ledger.storage.mailbox import Mailbox
from tests.cmfl.commands.conftest import SHARED, cmfl, first_decided, refusal, settings_of, succeeds
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.processes import Forks

pytestmark = SHARED

OF_CLIENTS = ("payload", "vector")


def test_a_round_names_its_blobs(home: Path) -> None:
    number = first_decided(home)
    rows = succeeds("blobs", "list", "--home", home, "--round", number, "--json").json["blobs"]
    uses = [row["use"] for row in rows]
    assert {"record", "model", "payload", "vector"} <= set(uses)
    assert all(row["is_there"] for row in rows)
    assert all((row["client"] is None) == (row["use"] not in OF_CLIENTS) for row in rows)
    shown = succeeds("blobs", "list", "--home", home, "--round", number).out
    assert rows[0]["sha256"][:12] in shown
    assert "was not decided" in refusal("blobs", "list", "--home", home, "--round", 999)


def test_old_payloads_go_and_the_record_stays(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = first_decided(copy)
    listed = ("blobs", "list", "--home", copy, "--round", number, "--json")
    manifest = json.loads(next(copy.glob("runs/*/deployment.json")).read_text())
    contract, salt = (bytes.fromhex(manifest[name][2:]) for name in ("address", "salt"))
    domain = Domain(manifest["chain_id"], Address(contract), Digest(salt))
    mailbox = Mailbox(FolderObjects(copy / "blobs"))
    for of_round in (1, 99):
        body = PublishedPayload(Digest(bytes(32)))
        mailbox.put(Envelope(domain, of_round, ClientId(0), body))
    tries = ("blobs", "prune", "--home", copy, "--keep-rounds", 1, "--dry-run", "--json")
    with monkeypatch.context() as nothing_final:
        nothing_final.setattr(EmbeddedReader, "finalized", lambda _: manifest["block"])
        assert succeeds(*tries).json["payloads"] == [], "a reorganisation may need them again"
    tried = succeeds(*tries)
    assert not tried.json["removed"]
    assert len(tried.json["payloads"]) > 0
    assert all(row["is_there"] for row in succeeds(*listed).json["blobs"])
    gone = succeeds("blobs", "prune", "--home", copy, "--keep-rounds", 1, "--json").json
    assert gone["payloads"] == tried.json["payloads"]
    rows = succeeds(*listed).json["blobs"]
    # One client sends the same not-finite numbers in every round: they are not old.
    assert sum(not row["is_there"] for row in rows) > 1
    for row in rows:
        assert row["is_there"] == (row["sha256"] not in gone["payloads"])
        assert row["is_there"] or row["use"] == "payload"
    assert [int(path.name) for path in (copy / "blobs" / "mail").glob("*/*/*/*")] == [99]
    assert (
        "0 payloads removed" in succeeds("blobs", "prune", "--home", copy, "--keep-rounds", 1).out
    )
    # What is left of the run goes elsewhere, and what is not is said.
    place = copy.parent / "elsewhere"
    copied = cmfl("blobs", "copy", "--home", copy, "--to", place)
    assert copied.code == 3
    assert f"; {len(gone['payloads']) + gone['gone_before']} are missing" in copied.out
    there = FolderBlobs(place)
    assert all(there.has(Digest(bytes.fromhex(row["sha256"]))) for row in rows if row["is_there"])
    assert "127.0.0.1:9" in refusal("blobs", "copy", "--home", copy, "--to", "http://127.0.0.1:9")
    audit = cmfl("audit", "--home", copy, "--jobs", 1, "--json")
    assert audit.code == 3


def test_a_store_is_served_until_it_is_told_to_stop(
    home: Path, tmp_path: Path, forks: Forks
) -> None:
    digest = next(FolderBlobs(home / "blobs").digests())
    (tmp_path / "store").mkdir()
    FolderBlobs(tmp_path / "store").put(FolderBlobs(home / "blobs").get(digest))
    options = ("--home", str(home), "--folder", str(tmp_path / "store"), "--port", "0")
    with forks.start("blobs", "serve", *options) as served:
        url, _, rest = served.first_line().partition(" ")
        assert rest.startswith("keeps blobs and mail of 0x")
        name = digest.hex()
        answer = httpx.get(f"{url}/{name[:2]}/{name}", trust_env=False, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200
        other = refusal("blobs", "serve", *options)
        assert "serves it" in other
        served.terminate()
        _, err = served.communicate()
        assert (served.returncode, err) == (0, "")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--folder", "none/below"], "--folder none/below: the parent folder of none/below"),
        (["--port", "70000"], "--port"),
        (["--contract", "0x12"], "is not an address"),
        (["--host", "0.0.0.0", "--port", "0"], "with --public-url"),
        ([part for n in range(17) for part in ("--auditor", f"0x{n:040x}")], "17; must be at most"),
    ],
)
def test_wrong_options_of_a_store_are_refused(
    home: Path, options: list[str], sentence: str
) -> None:
    assert sentence in refusal("blobs", "serve", "--home", home, *options)


def test_rounds_name_pruned_payloads_and_the_audit_is_incomplete(tmp_path: Path) -> None:
    home = ("--home", tmp_path)
    settings = settings_of("protocol.rounds=2", "machine.keep=accepted")
    succeeds("run", "--preset", "smoke", *settings, *home)
    shown = succeeds("rounds", "show", 1, *home, "--json").json
    parts = shown["parts"]
    accepted = {entry["client"] for entry in parts["aggregation"]["accepted"]}
    active = {entry["client"] for entry in (*parts["updates"], *parts["committee"])}
    gone = sorted(active - accepted)
    sentence = (
        f"{len(gone)} of 10 payloads are not stored here, from clients "
        f"{', '.join(map(str, gone))}. Values that depend on them are shown, but cannot be checked."
    )
    assert sentence in succeeds("rounds", "show", 1, *home).out.splitlines()
    assert succeeds("rounds", "explain", 1, *home, "--json").json["sentences"][-1] == sentence
    report = cmfl("audit", *home)
    assert report.code == 3
    assert f"round 1, client {gone[0]}: the payload 0x" in report.out
    assert "INCOMPLETE: no contradiction was found, but steps 5, 6 lack inputs" in report.out
    assert " 9 the model, bit for bit               passed" in report.out
