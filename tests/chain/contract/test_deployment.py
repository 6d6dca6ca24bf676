"""A run is deployed once, with what its document says, and everything else is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.chain.contract.deploy import connect, creation_data, deploy, deployment_for
from ledger.chain.contract.ledger import (
    Manifest,
    read_manifest,
    read_run_manifest,
    settings_digest,
    write_manifest,
)
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.chain.ports import Receipt
from ledger.io.home import Home, RunPaths
from ledger.protocol import types
from ledger.protocol.documents.run import RunDocument, encode_run
from ledger.protocol.encoding import sha256
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import LedgerStage
from ledger.protocol.parameters import Parameters
from ledger.protocol.types import AcceptanceForm, Beacon, Quorum
from tests.contracts.twins import digest_of, registry_of

PARAMETERS = Parameters(
    clients=300,
    active_ppm=100_000,
    committee_ppm=400_000,
    aggregation_ppm=250_000,
    rounds=7,
    dimension=6,
    strategy=3,
    quorum=Quorum.BFT,
    beacon=Beacon.BLOCK,
    commit_blocks=5,
    deadline_blocks=31,
)
DOCUMENT = RunDocument(
    PARAMETERS, registry_of(300), digest_of("model"), (("weight", (2, 2)), ("bias", (2,))), {}
)

SMALL = replace(
    DOCUMENT,
    parameters=replace(PARAMETERS, clients=40, active_ppm=500_000),
    registry=registry_of(40),
)


def test_the_contract_holds_what_the_document_says(chain: EmbeddedChain, tmp_path: Path) -> None:
    manifest = deploy(chain, DOCUMENT, RunPaths(tmp_path))
    ledger = connect(chain, manifest)
    found = ledger.deployment()
    assert found == deployment_for(DOCUMENT)[0]
    assert found.config == sha256(encode_run(DOCUMENT))
    assert (found.clients, found.members, found.trainers) == (300, 12, 18)
    assert (found.form, found.beacon) == (AcceptanceForm.BELOW_TWO, Beacon.BLOCK)
    assert (found.commit_blocks, found.deadline_blocks) == (5, 31)
    assert found.replies == 7  # of 12 members 3 may be faulty: ceil((12 + 3 + 1) / 2) - 1
    assert ledger.state().stage is LedgerStage.OPEN
    assert ledger.registry() == DOCUMENT.registry


def test_deploying_again_deploys_nothing(chain: EmbeddedChain, tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    manifest, blocks = deploy(chain, DOCUMENT, paths), chain.head().number
    assert deploy(chain, DOCUMENT, paths) == manifest
    assert chain.head().number == blocks


def test_a_registration_that_was_cut_off_is_completed(
    chain: EmbeddedChain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, send = RunPaths(tmp_path), chain.send

    def send_two(to: str | None, data: bytes, gas: int) -> Receipt:
        if chain.head().number == 2:
            raise ChainError("cut off")
        return send(to, data, gas)

    with monkeypatch.context() as patched:
        patched.setattr(chain, "send", send_two)
        with pytest.raises(ChainError, match="cut off"):
            deploy(chain, DOCUMENT, paths)
    ledger = connect(chain, read_manifest(paths.manifest))
    assert ledger.state().registered == 256
    assert ledger.opening(1) is None
    assert deploy(chain, DOCUMENT, paths) == read_manifest(paths.manifest)
    assert ledger.state().stage is LedgerStage.OPEN


def test_the_last_registration_can_be_left_to_a_later_deployment(
    chain: EmbeddedChain, tmp_path: Path
) -> None:
    paths = RunPaths(tmp_path)
    ledger = connect(chain, deploy(chain, DOCUMENT, paths, opens=False))
    assert (ledger.state().registered, ledger.state().stage) == (256, LedgerStage.REGISTERING)
    deploy(chain, DOCUMENT, paths, opens=False)
    assert chain.head().number == 2
    chain.mine(7)
    deploy(chain, DOCUMENT, paths)
    opening = ledger.opening(1)
    assert opening is not None
    assert opening.opened_block == chain.head().number == 10


def test_another_document_is_refused_where_one_is_deployed(
    chain: EmbeddedChain, tmp_path: Path
) -> None:
    paths = RunPaths(tmp_path)
    deploy(chain, DOCUMENT, paths)
    other = replace(DOCUMENT, layout=(("weight", (6,)),))
    with pytest.raises(ChainError, match="has another configuration"):
        deploy(chain, other, paths)


# What a manifest says is checked, all of it.


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedChain, Manifest]]:
    folder = tmp_path_factory.mktemp("small")
    with EmbeddedChain.create(folder / "chain.sqlite", synchronous="NORMAL") as chain:
        yield chain, deploy(chain, SMALL, RunPaths(folder))


def changed(manifest: Manifest, **fields: object) -> Manifest:
    return replace(manifest, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"chain_id": 7}, "is for chain 7"),
        ({"genesis_hash": "0x00"}, "with genesis 0x00"),
        ({"compiler": "vyper 0.1"}, "manifest's compiler differs from this program"),
        ({"bytecode_sha256": "00" * 32}, "manifest's bytecode_sha256 differs"),
        ({"sources": {}}, "manifest's sources differs"),
        ({"address": f"0x{'11' * 20}"}, "no contract at"),
        ({"config": "0x00"}, "has run document"),
        ({"arguments": {}}, "has config 0x.*, not None as in its manifest"),
        ({"transaction": "0xzz"}, "is not a hash"),
        ({"transaction": "0x00"}, "is not a hash"),
        ({"transaction": f"0x{'00' * 32}"}, "no mined transaction 0x0000"),
        ({"block": 2}, "block 1 created the contract, not 2"),
        ({"deployer": f"0x{'11' * 20}"}, "deployed the contract, not 0x11"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_each_field_of_a_manifest_is_checked(
    small: tuple[EmbeddedChain, Manifest], changes: dict[str, object], fact: str
) -> None:
    chain, manifest = small
    with pytest.raises(ChainError, match=fact):
        connect(chain, changed(manifest, **changes))


@pytest.mark.parametrize("name", ["clients", "form", "rounds", "replies", "beacon", "model"])
def test_each_argument_of_a_manifest_is_checked(
    small: tuple[EmbeddedChain, Manifest], name: str
) -> None:
    chain, manifest = small
    wrong = changed(manifest, arguments=manifest.arguments | {name: "else"})
    with pytest.raises(ChainError, match=f"the contract has {name} .*, not else"):
        connect(chain, wrong)
    more = changed(manifest, arguments=manifest.arguments | {"fee": 1})
    with pytest.raises(ChainError, match="arguments that the contract does not have"):
        connect(chain, more)


def test_a_contract_that_was_created_with_other_bytes_is_refused(
    small: tuple[EmbeddedChain, Manifest],
) -> None:
    chain, manifest = small
    # Bytes behind the constructor's arguments change nothing in the contract.
    data = creation_data(deployment_for(SMALL)[0]) + b"!"
    receipt = chain.send(None, data, 6_500_000)
    other = changed(
        manifest,
        address=receipt.contract_address,
        transaction=f"0x{receipt.transaction_hash.hex()}",
        block=receipt.block_number,
    )
    with pytest.raises(ChainError, match="created by other code, or with other arguments"):
        connect(chain, other)


def test_a_transaction_that_created_nothing_is_refused(
    small: tuple[EmbeddedChain, Manifest],
) -> None:
    chain, manifest = small
    receipt = chain.send(chain.sender, b"", 30_000)
    other = changed(manifest, transaction=f"0x{receipt.transaction_hash.hex()}")
    with pytest.raises(ChainError, match="did not create the contract"):
        connect(chain, other)


# A manifest belongs to its folder.


@pytest.fixture
def two(small: tuple[EmbeddedChain, Manifest], tmp_path: Path) -> tuple[RunPaths, RunPaths]:
    home, (_, manifest) = Home(tmp_path), small
    for name, seed in (("clean", 1), ("attacked", 2)):
        paths = home.run(name)
        paths.path.mkdir(parents=True)
        paths.configuration.write_text(f"seed = {seed}\n[machine]\nworkers = 1\n")
        own = changed(manifest, run=name, configuration=settings_digest(paths))
        write_manifest(paths.manifest, own)
    return home.run("clean"), home.run("attacked")


def test_settings_that_cannot_be_read_are_not_taken_for_none(tmp_path: Path) -> None:
    absent = settings_digest(RunPaths(tmp_path / "absent"))
    assert absent == settings_digest(RunPaths(tmp_path))
    (tmp_path / "run").write_bytes(b"")  # a file in place of the folder
    with pytest.raises(ChainError, match="cannot be read"):
        settings_digest(RunPaths(tmp_path / "run"))


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def test_swapped_manifests_are_refused(two: tuple[RunPaths, RunPaths]) -> None:
    swap(two[0].manifest, two[1].manifest)
    for paths, other in (two, two[::-1]):
        said = f"{paths.manifest} is the manifest of run '{other.name}', not of '{paths.name}'"
        with pytest.raises(ChainError, match=said):
            read_run_manifest(paths)


def test_swapped_configurations_are_refused(two: tuple[RunPaths, RunPaths]) -> None:
    swap(two[0].configuration, two[1].configuration)
    for paths in two:
        said = f"{paths.configuration} has another configuration .* than {paths.manifest}"
        with pytest.raises(ChainError, match=said):
            read_run_manifest(paths)


def test_swapped_folders_are_refused_and_so_is_a_new_name(two: tuple[RunPaths, RunPaths]) -> None:
    clean, attacked = (paths.path for paths in two)
    clean.rename(clean.with_name("mine"))
    said = "rename its folder to 'clean'"
    with pytest.raises(ChainError, match=said):
        read_run_manifest(RunPaths(clean.with_name("mine")))
    attacked.rename(clean)
    with pytest.raises(ChainError, match="manifest of run 'attacked', not of 'clean'"):
        read_run_manifest(RunPaths(clean))


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("seed = 1", True),
        ("seed = 1\n[machine]\nworkers = 8\ndevice = 'cuda'", True),
        ("seed = 1\n[data]\nname = 'digits'", False),
        ("seed = 2", False),
        ("", False),
        (None, False),
    ],
)
def test_only_settings_of_the_machine_may_differ(
    two: tuple[RunPaths, RunPaths], text: str | None, is_same: bool
) -> None:
    paths, _ = two
    if text is None:
        paths.configuration.unlink()
    else:
        paths.configuration.write_text(text)
    if is_same:
        assert read_run_manifest(paths).run == "clean"
    else:
        with pytest.raises(ChainError, match="has another configuration"):
            read_run_manifest(paths)


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"seed =", ": not TOML"),
        (b"\xff", " is not UTF-8 text"),
        (b"#" * 100_001, " is over 100000 bytes"),
        (b"a." * 100 + b"a = 1", ": not readable as TOML: line 1 has 100 dots"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_named(
    two: tuple[RunPaths, RunPaths], data: bytes, fact: str
) -> None:
    two[0].configuration.write_bytes(data)
    with pytest.raises(ChainError, match=f"{two[0].configuration}{fact}"):
        read_run_manifest(two[0])


def test_a_pipe_in_place_of_a_file_blocks_nobody(two: tuple[RunPaths, RunPaths]) -> None:
    for path in (two[0].configuration, two[0].manifest):
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(ChainError, match=f"{path} cannot be read: it is not a file"):
            read_run_manifest(two[0])


@pytest.mark.parametrize(("fields", "found"), [({"version": 1}, 1), ({"version": 99}, 99)])
def test_a_manifest_of_another_version_says_so(
    tmp_path: Path, fields: dict[str, int], found: int
) -> None:
    RunPaths(tmp_path).manifest.write_text(json.dumps({"chain_id": 7, **fields}))
    sentence = f"protocol version {found}; this program needs version {types.PROTOCOL_VERSION}"
    with pytest.raises(ChainError, match=sentence):
        read_run_manifest(RunPaths(tmp_path))
