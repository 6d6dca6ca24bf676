"""What others wrote is text where people read it: neither markup nor a terminal's commands."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest

from clients.configuration.loading import load
from clients.runs.population import populate, run_document
from cmfl.commands.console import plain, print_line, shown_as_lines
from ledger.chain.contract.deploy import DEPLOYMENT_GAS, creation_data, deploy, deployment_for
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.io.home import Home
from ledger.protocol.canonical import encode
from ledger.protocol.documents.run import RunDocument, encode_run
from ledger.protocol.encoding import vector_bytes
from ledger.storage.blobs import FolderBlobs
from tests.chain.rpc.scripted_node import Fault, ScriptedNode
from tests.cmfl.commands.conftest import SHARED, cmfl, refusal, succeeds

pytestmark = SHARED

HOSTILE = "[/red][bold]:boom: \x1b[2J\x1b]0;owned\x07\r\b\u202e\udcff"
SHOWN = r"[/red][bold]:boom: \x1b[2J\x1b]0;owned\x07\r\x08\u202e\udcff"
ESCAPES = "\x1b\x07\b\r\u202e\x9b"


def printed(act: Callable[[], None]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        act()
    return out.getvalue()


def require_harmless(text: str) -> None:
    assert not set(ESCAPES).intersection(text)


def test_a_line_is_printed_verbatim_except_terminal_controls() -> None:
    assert printed(lambda: print_line(HOSTILE)) == f"{SHOWN}\n"
    assert printed(lambda: print_line("2 of 3 clients (å, 中)")) == "2 of 3 clients (å, 中)\n"
    assert plain("one line\nPASSED") == r"one line\nPASSED"


def test_a_hostile_name_of_a_run_is_one_harmless_line(copy: Path) -> None:
    strange = Path(os.fsdecode(os.fsencode(copy / "runs") + b"/[red]\x1b[2J\xff"))
    shutil.copytree(copy / "runs" / "run", strange)
    said = refusal("rounds", "list", "--home", copy)
    assert said.endswith(r"with --run: [red]\x1b[2J\udcff, run")
    said = refusal("rounds", "list", "--home", copy, "--run", "[/red]\x1b[2J")
    require_harmless(said)
    assert "[/red]" in said
    succeeds("rounds", "list", "--home", copy, "--run", "run")


def test_what_a_node_answers_is_one_harmless_line(tmp_path: Path) -> None:
    fault = Fault(-32000, "[/red] \x1b[2J\u202e gone")
    with ScriptedNode(eth_getBlockByNumber=fault) as node:
        options = ["--home", tmp_path, "--rpc-url", node.url, "--chain-id", 7]
        where = ["--address", "0x" + "11" * 20]
        for command in (["rounds", "list", *where], ["audit", *where], ["doctor"]):
            result = cmfl(*command, *options)
            said = result.out + result.err
            assert result.code == (1 if command == ["doctor"] else 2), said
            require_harmless(said)
            assert r"[/red] \x1b[2J\u202e gone" in said


@pytest.mark.parametrize(
    "text",
    ['["[/red]\\u001b[2J"]\n"a\\nPASSED: all ten steps hold" = 1\n', f"{'k' * 90_000} = 1\n"],
)
def test_a_hostile_configurations_names_print_as_one_short_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    said = refusal("run", "--home", tmp_path / "home", "--config", tmp_path / "c.toml")
    require_harmless(said)
    assert len(said) < 2_200


@pytest.mark.parametrize("field", ["run", "transaction"])
def test_fields_of_a_hostile_manifest_are_one_short_line(copy: Path, field: str) -> None:
    path = copy / "runs" / "run" / "deployment.json"
    hostile = "[/red]\x1b[2J\nPASSED: all ten steps hold" + "x" * 50_000
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {field: hostile}))
    for command in (("audit",), ("rounds", "list"), ("run", "--resume")):
        said = refusal(*command, "--home", copy)
        require_harmless(said)
        assert len(said) < 2_200
    result = cmfl("doctor", "--home", copy)
    assert result.code == 1
    require_harmless(result.out)
    assert max(map(len, result.out.splitlines())) < 2_200
    assert "\nPASSED" not in result.out


def test_only_our_own_warnings_are_printed_as_one_line() -> None:
    err = io.StringIO()
    with redirect_stderr(err), shown_as_lines():
        logging.getLogger("ledger.chain").warning("%s is\nlarge", "\x1b[2J")
        logging.getLogger("eth.db").error("Unexpected error", exc_info=ValueError("a\nb"))
        logging.getLogger("ledger.chain").info("nothing of note")
    logging.getLogger("ledger.chain").debug("after it")
    assert err.getvalue() == "cmfl: \\x1b[2J is large\n"


@pytest.fixture
def document() -> RunDocument:
    configuration = load("smoke")
    return run_document(configuration, populate(configuration))


def publish(home: Path, document: RunDocument) -> FolderBlobs:
    blobs = FolderBlobs(home / "blobs")
    blobs.put(encode_run(document))
    blobs.put(vector_bytes(populate(load("smoke")).initial))
    return blobs


def test_a_hostile_experiment_is_opaque_to_every_command(
    tmp_path: Path, document: RunDocument
) -> None:
    text = HOSTILE.replace("\udcff", "")
    experiment = {text: [text, {"[red]": text}], "name": "[/bold]", "method": text}
    hostile = replace(document, experiment=experiment)
    publish(tmp_path, hostile)
    with EmbeddedChain.create(tmp_path / "chain.sqlite") as chain:
        deploy(chain, hostile, Home(tmp_path).run("run"))
    for command in (
        *(("rounds", "list"), ("rounds", "show", 1), ("rounds", "explain", 1)),
        *(("clients", "list"), ("clients", "show", 1), ("audit",), ("doctor",)),
    ):
        shown = succeeds(*command, "--home", tmp_path)
        require_harmless(shown.out)
        succeeds(*command, "--home", tmp_path, "--json")
    assert "PASSED" in succeeds("audit", "--home", tmp_path).out


def test_a_hostile_configuration_does_not_prevent_the_verdict(
    tmp_path: Path, document: RunDocument
) -> None:
    blobs = publish(tmp_path, document)
    hostile = blobs.put(encode({"[/red]\x1b[2J": "[/bold]"}))
    deployment, _ = deployment_for(document)
    with EmbeddedChain.create(tmp_path / "chain.sqlite") as chain:
        data = creation_data(replace(deployment, config=hostile))
        address = chain.send(None, data, DEPLOYMENT_GAS).contract_address
    result = cmfl("audit", "--home", tmp_path, "--address", address)
    assert (result.code, result.err) == (1, "")
    require_harmless(result.out)
    assert result.out.splitlines()[-1].startswith("FAILED: ")
    assert cmfl("audit", "--home", tmp_path, "--address", address, "--json").json["outcome"] == (
        "failed"
    )
