"""A run's inputs as they are on this machine, held against those that its document binds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.datasets.data_binding import (
    require_bound_files,
    require_bound_samples,
    simulated_digests,
)
from clients.datasets.own import OWN
from clients.models.model_binding import require_bound_model

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration
    from clients.datasets.federated_data import FederatedData
    from clients.models.model import Model
    from ledger.protocol.documents.run import RunDocument


def require_bound_inputs(
    document: RunDocument, configuration: Configuration, model: Model, data: FederatedData
) -> None:
    """Refuse other code, files, frozen state or samples than a run was begun with.

    Args:
        document: of the run.
        configuration: as it is here.
        model: of that configuration.
        data: of that configuration, before any client poisons its own.

    Raises:
        ConfigurationError: names the first that differs, with both digests.
    """
    require_bound_model(document, model)
    require_bound_files(document, configuration.data.choice())
    if data.name != OWN.name:
        digests = simulated_digests(data, configuration.seed)
        require_bound_samples(document, digests, data.sample_counts)
