"""Comparison of a run's local inputs with the digests in its document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.datasets.federated_data import FederatedData
from clients.datasets.own import OWN
from clients.datasets.own_samples import (
    require_bound_files,
    require_bound_samples,
    simulated_digests,
)
from clients.models.model import Model, require_same
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance import OwnRuleName

if TYPE_CHECKING:
    from clients.configuration.schema import Configuration


def require_bound_inputs(
    document: RunDocument, configuration: Configuration, model: Model, data: FederatedData
) -> None:
    """Refuse other code, files, frozen state or samples than those of the run document."""
    require_bound_model(document, model)
    require_bound_files(document, configuration.data.choice())
    if data.name != OWN.name:
        digests = simulated_digests(data, configuration.seed)
        declared = [client.samples for client in document.registry]
        require_bound_samples(document, digests, declared)


def require_bound_sources(document: RunDocument, local: RunDocument) -> None:
    """Refuse another file of an own rule or attack than that of the run document."""
    run_rule, rule = (OwnRuleName.of(each.parameters.distance) for each in (document, local))
    if run_rule is not None and rule is not None and run_rule != rule:
        raise ConfigurationError(
            f"protocol.distance: the run's rule is {run_rule.label} with sha256 "
            f"{run_rule.digest}, and this is {rule.label} with {rule.digest}: restore it"
        )
    was, now = (document.experiment.get("sources"), local.experiment.get("sources"))
    if was != now and was and now:
        raise ConfigurationError(
            f"malice.attack: its code was {_source(was)}, and is {_source(now)}: restore it"
        )


def _source(sources: object) -> str:
    entry = sources.get("attack") if isinstance(sources, dict) else None
    return " ".join(map(str, entry.values()))[:200] if isinstance(entry, dict) else "none"


def require_bound_model(document: RunDocument, model: Model) -> None:
    """Reject another model than the run was deployed with."""
    bound, here = document.experiment.get("model"), model.recorded()
    bound = bound if isinstance(bound, dict) else {}
    subject = f"model.name = {model.name!r}: the sha256 of its code"
    require_same(subject, document.model_source.hex(), model.source.hex())
    options = bound.get("options")
    for name, digest in model.option_files.items():
        was = options.get(name) if isinstance(options, dict) else None
        require_same(f"model.options.{name} = {model.options[name]!r}: its file", str(was), digest)
    subject = f"model.name = {model.name!r}: the digest of its frozen parameters and buffers"
    require_same(subject, document.frozen_state.hex(), model.frozen_state.hex())
    if bound != here or model.layout != document.layout:
        raise ConfigurationError(
            f"the model {model.name!r} is not the one that the run was deployed with: it has other "
            f"tensors or options"
        )
