"""`make nodes`: the run on our own node, what is skipped and refused, and when it has failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chain import nodes
from tests.chain.nodes import MissingNodeError, Played, is_equal_everywhere, main, node_command

RIGHT = Played(("anvil",), "0x01", is_right=True)


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_a_killed_run_with_faults_is_resumed_and_audited_from_afar(tmp_path: Path) -> None:
    found = nodes.played("embedded", tmp_path)
    assert found.is_right
    assert found.cells[:2] == ("embedded", "cmfl-ledger/py-evm")


def test_every_run_has_to_be_right_and_all_heads_equal() -> None:
    assert is_equal_everywhere([RIGHT, RIGHT])
    assert not is_equal_everywhere([RIGHT, replace(RIGHT, head="0x02")])
    assert not is_equal_everywhere([RIGHT, replace(RIGHT, is_right=False)])
    assert not is_equal_everywhere([])


def test_an_unknown_kind_of_node_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["anvil-prague", "geth"])
    assert "'geth' is not a kind of node: give one of embedded, anvil" in capsys.readouterr().err


def test_a_missing_node_is_skipped_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        nodes, "node_command", lambda kind, port: node_command(kind, port, tmp_path)
    )
    assert main(["hardhat2"]) == 1
    package = tmp_path / "hardhat2/node_modules/hardhat"
    assert f"| hardhat2 | skipped: there is no {package}: .ci/nodes.sh" in capsys.readouterr().out
    monkeypatch.delenv("CMFL_ANVIL", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingNodeError, match="no anvil on PATH"):
        node_command("anvil-osaka", 1, tmp_path)
