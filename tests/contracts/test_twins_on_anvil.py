"""The same machine beside the contract on anvil: what holds on py-evm holds on another EVM."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.contracts.anvil_chain import AnvilChain
from tests.contracts.test_twins import TwinsMachine, settings_of
from tests.faults import times

if TYPE_CHECKING:
    from pathlib import Path

    from ledger.chain.ports import ChainWriter


class AnvilMachine(TwinsMachine):
    """The machine on a chain of anvil's, or on the embedded one where no program is named."""

    program: str | None

    def new_chain(self) -> ChainWriter:
        if self.program is None:
            return super().new_chain()
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        return AnvilChain(self.program, folder)


@pytest.mark.network
def test_contract_and_specification_never_differ_on_anvil(tmp_path: Path) -> None:
    program = os.environ.get("CMFL_ANVIL") or shutil.which("anvil")
    if program is None:
        pytest.skip("no anvil on PATH, and CMFL_ANVIL names none")
    machine = type("Machine", (AnvilMachine,), {"folder": tmp_path, "program": program})
    run_state_machine_as_test(machine, settings=settings_of(times(2, 500)))
