"""A run that can continue: its remaining rounds, a row for each, and the last model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients.models.model_file import facts_of
from ledger.protocol.encoding import sha256, vector_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.configuration.schema import Configuration
    from clients.runs.metrics import Measure, RoundMetrics
    from clients.runs.population import Population
    from clients.runs.run_folder import RunFolder
    from clients.simulation import Simulation
    from ledger.chain.contract.manifest import Manifest
    from ledger.chain.round_ledger import RoundLedger


@dataclass(frozen=True, slots=True)
class Run:
    """A deployed run.

    Attributes:
        configuration: with a chosen training path.
        folder: its files.
        manifest: of the deployment; None on the memory ledger.
        ledger: the contract, or the memory ledger.
        population: the clients.
        measure: computes a round's row.
        simulation: all its actors.
        without_row: ended rounds that cannot be evaluated any more, since their model is missing.
    """

    configuration: Configuration
    folder: RunFolder
    manifest: Manifest | None
    ledger: RoundLedger
    population: Population
    measure: Measure
    simulation: Simulation
    without_row: tuple[int, ...] = ()

    def go_on(self, on_round: Callable[[RoundMetrics], None]) -> list[RoundMetrics]:
        """Play all remaining rounds; each row is written before `on_round` gets it."""
        rows: list[RoundMetrics] = []

        def write(row: RoundMetrics) -> None:
            self.folder.append_metrics(row)
            rows.append(row)
            on_round(row)

        self.simulation.run(self.measure, write)
        self._write_model()
        return rows

    def _write_model(self) -> None:
        written = self.folder.read_model()
        # A run that had ended needs no blob for what it has written already.
        state = self.ledger.state()
        if written is None or sha256(vector_bytes(written.vector)) != state.model:
            model = self.population.model
            facts = facts_of(model.recorded(), model.source, model.frozen_state)
            facts["head"] = f"0x{state.head.hex()}"
            self.folder.write_model(self.simulation.model, model.layout, facts)
