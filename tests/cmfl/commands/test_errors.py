"""Whatever is wrong with a command or its home is one line and exit code 2, and no traceback."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledger.chain.embedded.reader import EmbeddedReader
from ledger.chain.rpc.server import RpcServer
from ledger.io.home import Home
from tests.cmfl.commands.conftest import (
    SHARED,
    cmfl,
    every_command,
    first_decided,
    refusal,
    succeeds,
)
from tests.processes import Forks

pytestmark = SHARED

READING = (("rounds", "list"), ("rounds", "show", 1), ("clients", "list"), ("audit",))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--preset", "huge"], "unknown preset 'huge'; known are digits"),
        (["--preset", "smoke", "--workers", "0"], "machine.workers: Input should be greater"),
        (["--preset", "smoke", "--run", "a/b"], "run name 'a/b': must be up to 64"),
        (["--resume"], "there is no run 'run' in"),
        (["--resume", "--preset", "smoke"], "--resume uses the run's configuration"),
    ],
)
def test_wrong_options_of_a_run_are_refused(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    assert sentence in refusal("run", "--home", tmp_path / "home", *options)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("data", [b"\xff\xfe", b"[protocol]\nclients = 2\n"])
def test_a_damaged_configuration_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    refusal("run", "--home", tmp_path / "home", "--config", path)


def test_a_recorded_configuration_that_was_changed_is_refused_as_another(copy: Path) -> None:
    path = copy / "runs" / "run" / "config.toml"
    path.write_text(path.read_text().replace("batch_size = 16", "batch_size = 17"))
    assert "has another configuration" in refusal("run", "--home", copy, "--resume")


def test_an_existing_run_is_not_begun_again(copy: Path) -> None:
    said = refusal("run", "--preset", "smoke", "--home", copy)
    assert "already has a run 'run'" in said
    assert "resume it, or name another" in said


def test_a_resumed_run_keeps_its_configuration(copy: Path) -> None:
    for options in (["--set", "seed=1"], ["--rounds", "9"]):
        said = refusal("run", "--home", copy, "--resume", *options)
        assert "a resumed run keeps its configuration" in said
    succeeds("run", "--home", copy, "--resume", "--set", "machine.workers=1")


@pytest.mark.parametrize(
    "damage",
    [lambda chain: chain[: len(chain) // 2], lambda _: b"no chain at all" * 1000],
    ids=["half", "text"],
)
def test_a_damaged_chain_file_is_refused(copy: Path, damage: Callable[[bytes], bytes]) -> None:
    path = copy / "chain.sqlite"
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)
    path.write_bytes(damage(path.read_bytes()))
    said = [refusal(*command, "--home", copy) for command in READING[:3]]
    said.append(refusal("run", "--home", copy, "--resume"))
    assert all("chain" in sentence for sentence in said)
    assert cmfl("audit", "--home", copy).code in {1, 2}


def test_a_log_lacking_a_round_stops_resumption_and_keeps_rows(copy: Path) -> None:
    with closing(sqlite3.connect(copy / "chain.sqlite")) as file, file:
        file.execute("DELETE FROM logs WHERE id = (SELECT max(id) FROM logs)")
    rows = (copy / "runs" / "run" / "metrics.jsonl").read_bytes()
    said = refusal("run", "--home", copy, "--resume")
    assert said.startswith("the chain: round 5 of 5 that ended has no end in the logs: ")
    assert (copy / "runs" / "run" / "metrics.jsonl").read_bytes() == rows
    # Of a node nothing would follow from it; a file that lacks a log is damaged.
    assert "logs are damaged" in refusal("verify", "round", 5, "--home", copy)
    assert cmfl("audit", "--home", copy).code == 1


def test_nobody_signs_without_a_readable_journal(tmp_path: Path) -> None:
    succeeds("deploy", "--preset", "smoke", "--set", "protocol.rounds=1", "--home", tmp_path)
    journal = tmp_path / "runs" / "run" / "votes.sqlite"
    journal.write_bytes(b"no journal at all" * 1000)
    said = refusal("run", "--home", tmp_path, "--resume")
    assert said == f"vote journal {journal}: file is not a database"
    (one,) = succeeds("rounds", "list", "--home", tmp_path, "--json").json["rounds"]
    assert one["status"] == "open"
    journal.unlink()
    assert succeeds("run", "--home", tmp_path, "--resume", "--json").json["round"] == 1


def test_a_home_without_a_chain_is_refused_for_reading(tmp_path: Path) -> None:
    for command in READING:
        assert "chain.sqlite: no such chain file" in refusal(*command, "--home", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chain.sqlite").symlink_to("chain.sqlite")
    refusal("rounds", "list", "--home", tmp_path)


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "home"
    path.write_text("a file")
    for command in (*READING, ("run", "--preset", "smoke")):
        said = refusal(*command, "--home", path)
        assert said == f"--home {path}: is a file, but must be a folder"


def test_a_run_without_its_manifest_is_to_be_restored(copy: Path) -> None:
    Home(copy).run("run").manifest.unlink()
    for run in ((), ("--run", "run")):
        said = refusal("audit", "--home", copy, *run)
        assert "deployment.json is missing, but run 'run' was played" in said


@pytest.mark.parametrize("command", READING)
def test_a_run_that_is_not_there_is_refused_by_name(home: Path, command: tuple[str]) -> None:
    for name in ("other", "a/b", "..", ".", "", "x" * 300):
        said = refusal(*command, "--home", home, "--run", name)
        assert "no deployed run" in said or said.startswith("run name")


def test_one_of_several_runs_has_to_be_named(copy: Path) -> None:
    succeeds("deploy", "--preset", "smoke", "--home", copy, "--run", "second")
    said = refusal("rounds", "list", "--home", copy)
    assert said.endswith("with --run: run, second")
    succeeds("rounds", "list", "--home", copy, "--run", "second")


def test_a_round_that_has_not_opened_is_refused(home: Path) -> None:
    for command in ("show", "explain"):
        said = refusal("rounds", command, 6, "--home", home)
        assert said == "round 6 has not opened; the newest is 5"


def edited(**changes: object) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps(json.loads(data) | changes).encode()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: data[:-20], "is not JSON"),
        (edited(version=1), "has protocol version 1; this program needs version"),
        (edited(genesis_hash="0x" + "11" * 32), "the manifest is for the chain with genesis 0x11"),
        (edited(config="0x" + "11" * 32), "the contract has run document 0x"),
    ],
)
def test_a_damaged_manifest_is_refused(
    copy: Path, damage: Callable[[bytes], bytes], sentence: str
) -> None:
    path = copy / "runs" / "run" / "deployment.json"
    path.write_bytes(damage(path.read_bytes()))
    # The other reading commands open a run as the first does: see the next test.
    for command in (READING[0], ("audit",), ("run", "--resume")):
        assert sentence in refusal(*command, "--home", copy)


def test_a_manifest_with_another_transaction_is_refused_and_the_audit_reads_the_chain(
    copy: Path,
) -> None:
    path = copy / "runs" / "run" / "deployment.json"
    path.write_bytes(edited(transaction="0x" + "11" * 32)(path.read_bytes()))
    for command in (READING[0], ("run", "--resume")):
        assert "no mined transaction 0x1111" in refusal(*command, "--home", copy)
    # An audit takes the creating transaction from the contract's own log.
    succeeds("audit", "--home", copy)


def test_a_manifest_with_another_block_is_refused_until_resumed(copy: Path) -> None:
    # A reorganisation may have put the creation elsewhere; its transaction is the same.
    path = copy / "runs" / "run" / "deployment.json"
    before = path.read_bytes()
    path.write_bytes(edited(block=8)(before))
    for command in READING:
        said = refusal(*command, "--home", copy)
        assert "block 1 created the contract, not 8" in said
    succeeds("run", "--resume", "--home", copy)
    assert json.loads(path.read_bytes()) == json.loads(before)


def test_an_address_without_the_contract_is_refused(home: Path) -> None:
    for command in READING:
        assert "0x11" in refusal(*command, "--home", home, "--address", "0x" + "11" * 20)


def test_a_damaged_blob_fails_the_audit_which_names_it(copy: Path) -> None:
    digest = ranked_payload(copy)
    path = copy / "blobs" / digest[:2] / digest
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    result = cmfl("audit", "--home", copy)
    assert (result.code, result.err) == (1, "")
    assert digest in result.out
    assert re.search(r"^ 5 blobs equal to their commitments +failed$", result.out, re.MULTILINE)
    report = cmfl("audit", "--home", copy, "--json")
    assert report.code == 1
    assert report.json["outcome"] == "failed"


def test_a_missing_blob_leaves_the_audit_incomplete_and_is_named(copy: Path) -> None:
    digest = ranked_payload(copy)
    (copy / "blobs" / digest[:2] / digest).unlink()
    result = cmfl("audit", "--home", copy)
    assert (result.code, result.err) == (3, "")
    assert digest in result.out
    assert "\nINCOMPLETE: no contradiction was found, but steps " in result.out
    report = cmfl("audit", "--home", copy, "--json")
    assert (report.code, report.json["outcome"]) == (3, "incomplete")


def ranked_payload(home: Path) -> str:
    shown = succeeds("rounds", "show", first_decided(home), "--home", home, "--json").json
    return str(shown["parts"]["aggregation"]["accepted"][0]["payload"]).removeprefix("0x")


def test_a_damaged_first_model_is_published_again(tmp_path: Path) -> None:
    succeeds("deploy", "--preset", "smoke", "--set", "protocol.rounds=1", "--home", tmp_path)
    manifest = json.loads((tmp_path / "runs" / "run" / "deployment.json").read_text())
    digest = manifest["arguments"]["model"].removeprefix("0x")
    path = tmp_path / "blobs" / digest[:2] / digest
    path.write_bytes(b"other bytes")
    # It follows from the configuration.
    succeeds("run", "--home", tmp_path, "--resume", "--json")
    succeeds("audit", "--home", tmp_path)


def test_the_verdict_remains_if_the_report_does_not_fit(copy: Path, home: Path) -> None:
    lost = "cmfl: --report /dev/full: No space left on device; no report was written\n"
    passed = cmfl("audit", "--home", home, "--report", "/dev/full")
    assert (passed.code, passed.err) == (2, lost)
    assert passed.out.splitlines()[-1].startswith("PASSED")
    digest = ranked_payload(copy)
    (copy / "blobs" / digest[:2] / digest).unlink()
    incomplete = cmfl("audit", "--home", copy, "--report", "/dev/full")
    assert (incomplete.code, incomplete.err) == (3, lost)


WRITER = """
import pathlib, signal, sys
from ledger.chain.embedded.embedded_chain import EmbeddedChain
with EmbeddedChain.open(pathlib.Path(sys.argv[2])):
    print("writing", flush=True)
    signal.pause()
"""


def test_a_second_writer_is_refused_and_readers_are_not(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "writer.py").write_text(WRITER)
    monkeypatch.chdir(tmp_path)
    with (
        Forks(tmp_path / "forks", "tests.processes:run_script") as forks,
        forks.start("writer.py", copy / "chain.sqlite") as writer,
    ):
        assert writer.first_line() == "writing\n"
        said = refusal("run", "--home", copy, "--resume")
        assert f"process {writer.pid} (writer.py) writes to this chain" in said
        assert "writes to this chain" in refusal("deploy", "--home", copy, "--preset", "smoke")
        succeeds("rounds", "list", "--home", copy)
    succeeds("run", "--home", copy, "--resume")


def test_another_chain_id_is_refused(copy: Path) -> None:
    with EmbeddedReader.open(copy / "chain.sqlite") as chain:
        own = chain.chain_id
    sentence = f"has chain id {own}, expected 1"
    for command in (*READING, ("run", "--resume")):
        assert sentence in refusal(*command, "--home", copy, "--chain-id", 1)
    succeeds("rounds", "list", "--home", copy, "--chain-id", own)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMFL_PRIVATE_KEY", "0x" + "11" * 32)


@pytest.mark.usefixtures("key")
def test_an_unreachable_node_is_refused(home: Path, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        options = ["--rpc-url", url, "--chain-id", 1]
        for command in READING:
            said = refusal(*command, "--home", home, *options)
            assert said == f"{url}: unreachable (ConnectError)"
        said = refusal("run", "--preset", "smoke", "--home", tmp_path, *options)
        assert said == f"{url}: unreachable (ConnectError)"


@pytest.mark.usefixtures("key")
def test_what_is_no_address_of_a_node_is_refused(home: Path) -> None:
    said = refusal("rounds", "list", "--home", home, "--rpc-url", "ftp://here", "--chain-id", 1)
    assert said.startswith("the node's URL: the address must be ")


def test_a_node_needs_its_chain_id_and_a_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CMFL_PRIVATE_KEY", raising=False)
    options = ["run", "--preset", "smoke", "--home", tmp_path, "--rpc-url", "http://127.0.0.1:1"]
    assert "--rpc-url needs --chain-id" in refusal("rounds", "list", *options[3:])
    secret = "22" * 31
    for value in ("", "0x12", secret, "zz" * 32, "0x" + "00" * 32, "ff" * 32):
        monkeypatch.setenv("CMFL_PRIVATE_KEY", value)
        said = refusal(*options, "--chain-id", 1)
        assert "CMFL_PRIVATE_KEY" in said
        assert secret not in said


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 50_000, *(f'{{"version": {v}, "crypto": {{}}}}' for v in (1, 3))]
)
def test_a_keystore_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "key.json").write_text(text)
    (tmp_path / "password").write_text("swordfish\n")
    said = refusal(*with_keystore(tmp_path))
    assert said.startswith(f"--keystore {tmp_path / 'key.json'}: ")


def with_keystore(folder: Path) -> list[object]:
    options: list[object] = ["--rpc-url", "http://127.0.0.1:1", "--chain-id", 1]
    options += ["--keystore", folder / "key.json", "--password-file", folder / "password"]
    return ["run", "--preset", "smoke", "--home", folder / "home", *options]


def test_a_missing_keystore_or_password_is_refused(tmp_path: Path) -> None:
    assert "key.json cannot be read: No such file" in refusal(*with_keystore(tmp_path))
    (tmp_path / "key.json").write_text('{"version": 3, "crypto": {}}')
    assert "password cannot be read: No such file" in refusal(*with_keystore(tmp_path))


def test_an_unreadable_keystore_is_no_internal_error(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("swordfish")
    work = {"c": 2**31 - 1, "prf": "hmac-sha256", "dklen": 32, "salt": "00"}
    crypto = {"cipher": "aes-128-ctr", "kdf": "pbkdf2", "kdfparams": work}
    (tmp_path / "key.json").write_text(json.dumps({"version": 3, "crypto": crypto}))
    assert "key.json: its kdfparams take too long" in refusal(*with_keystore(tmp_path))
    (tmp_path / "key.json").write_text("[" * 100_000)
    assert "key.json: not JSON: nested more than" in refusal(*with_keystore(tmp_path))


def test_a_wrong_password_is_refused_and_the_right_one_signs(tmp_path: Path) -> None:
    from eth_account import Account

    keystore = Account.encrypt(b"\x11" * 32, "swordfish", kdf="pbkdf2", iterations=2)
    (tmp_path / "key.json").write_text(json.dumps(keystore))
    (tmp_path / "password").write_text("marlin\n")
    assert "MAC mismatch" in refusal(*with_keystore(tmp_path))
    (tmp_path / "password").write_text("swordfish\n")
    assert "unreachable" in refusal(*with_keystore(tmp_path))


def test_what_the_disk_refuses_is_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder should be")
    said = refusal("run", "--preset", "smoke", "--home", tmp_path)
    assert said == f"{tmp_path / 'runs'}: is a file, but must be a folder"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("rounds", "explain", "first"), "'round_number'"),
        (("run", "--rounds", "many"), "'--rounds'"),
        (("mine",), "'mine'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_wrong_command_line_is_one_line_too(command: tuple[str, ...], said: str) -> None:
    assert said in refusal(*command)


def test_a_group_without_a_command_shows_its_commands() -> None:
    shown = cmfl("rounds")
    assert (shown.code, shown.out) == (2, "")
    assert all(name in shown.err for name in ("list", "show", "explain"))


BY_ADDRESS = {
    name: option
    for name, command in every_command().items()
    for option in ("--address", "--contract")
    if option in command.options
}


@pytest.fixture(scope="module")
def address(home: Path) -> str:
    return str(json.loads(Home(home).run("run").manifest.read_bytes())["address"])


@pytest.mark.parametrize("spelt", [str.lower, str.upper, lambda text: text[2:]])
def test_an_audit_accepts_an_address_in_any_case(
    home: Path, address: str, spelt: Callable[[str], str]
) -> None:
    where = ["audit", "--home", home, "--address", spelt(address), "--jobs", 1, "--json"]
    with EmbeddedReader.open(Home(home).chain) as chain, RpcServer(chain) as server:
        node = ["--rpc-url", server.url, "--chain-id", chain.chain_id]
        for found in (succeeds(*where).json, succeeds(*where, *node).json):
            assert found["outcome"] == "passed", found
            assert found["deployment"]["address"] == address


@pytest.mark.parametrize("command", BY_ADDRESS)
def test_a_wrong_checksum_is_refused_by_every_command(address: str, command: str) -> None:
    for wrong, rule in (
        (f"0x{address[2:].swapcase()}", "its checksum is wrong"),
        (address[:-1], "0x and 40 hex digits"),
    ):
        said = refusal(*command.split(), BY_ADDRESS[command], wrong)
        assert repr(wrong) in said
        assert rule in said


def test_a_manifest_in_lower_case_is_the_same_deployment(copy: Path, address: str) -> None:
    path = Home(copy).run("run").manifest
    path.write_text(path.read_text().replace(address, address.lower()))
    result = succeeds("audit", "--home", copy, "--jobs", 1, "--json")
    assert result.json["deployment"]["address"] == address
