"""A run's local inputs: compared with the digests in its document, and models evaluated on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from clients.configuration.schema import Configuration
from clients.datasets.federated_data import FederatedData, named_stream, parse_settings
from clients.datasets.own import OWN, OwnOptions, trial_data
from clients.datasets.own_samples import (
    require_bound_files,
    require_bound_samples,
    simulated_digests,
)
from clients.datasets.registry import load_dataset
from clients.models.huggingface import AdaptedModel
from clients.models.model import (
    Model,
    ParameterVector,
    check_model,
    load_vector,
    perplexity,
    require_same,
)
from clients.models.model_file import BOUND_FACTS, OPTIONS, StoredModel, bound_facts
from clients.models.registry import MODELS, model_named
from clients.runs.metrics import training_samples
from clients.training.jobs import evaluate, majority_rate
from ledger.io.user_code import user_code
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.rules.distance import OwnRuleName


def require_bound_inputs(
    document: RunDocument, configuration: Configuration, model: Model, data: FederatedData
) -> None:
    """Refuse code, files, frozen state or samples that differ from the run document's."""
    require_bound_model(document, model)
    require_bound_files(document, configuration.data.choice())
    if data.name != OWN.name:
        digests = simulated_digests(data, configuration.seed)
        require_bound_samples(document, digests, [client.samples for client in document.registry])


def require_bound_sources(document: RunDocument, local: RunDocument) -> None:
    """Refuse a file of an own rule or attack that differs from the run document's."""
    run_rule, rule = (OwnRuleName.of(each.parameters.distance) for each in (document, local))
    if run_rule is not None and rule is not None and run_rule != rule:
        raise ConfigurationError(
            f"protocol.distance: expected {run_rule.label} with sha256 {run_rule.digest}, got "
            f"{rule.label} with {rule.digest}; restore it"
        )

    def source(sources: object) -> str:
        entry = sources.get("attack") if isinstance(sources, dict) else None
        return " ".join(map(str, entry.values()))[:200] if isinstance(entry, dict) else "none"

    was, now = (document.experiment.get("sources"), local.experiment.get("sources"))
    if was != now and was and now:
        raise ConfigurationError(
            f"malice.attack: its code was {source(was)}, and is now {source(now)}; restore it"
        )


def bound_model(configuration: Configuration, data: FederatedData, document: RunDocument) -> Model:
    """Return the run's model (ConfigurationError: it is not the one that was deployed)."""
    model = model_named(configuration.model.name, data.form, configuration.model.options)
    require_bound_model(document, model)
    return model


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
            f"the model {model.name!r} differs from the run's model; it has other tensors or "
            "options"
        )


@dataclass(frozen=True, slots=True)
class StoredQuality:
    """Quality of a stored model on a test set of `samples` samples or tokens; see `Quality`."""

    accuracy: float | None
    loss: float | None
    floor: float
    samples: int
    training_loss: float | None
    perplexity: float | None = None


def quality_of(
    stored: StoredModel,
    configuration: Configuration,
    document: RunDocument | None = None,
    *,
    training_loss: bool = False,
) -> StoredQuality:
    """Return the quality of a stored model on a configuration's data, or a run's inputs."""
    name, device, facts = configuration.model.name, configuration.machine.device, stored.facts

    def require_fact(fact: str, here: str) -> None:
        require_same(f"{fact} of model {name!r}", facts.get(fact, "nothing"), here)

    if name not in MODELS and OPTIONS in facts:  # before the code runs
        require_fact(BOUND_FACTS[0], f"0x{user_code('model.name', name).digest().hex()}")
    data, model = _inputs_of(configuration)
    _require_tensors_of(model, stored)
    if document is not None:
        require_bound_inputs(document, configuration, model, data)
    if OPTIONS in facts:
        bound = bound_facts(model.source, model.frozen_state)
        for fact in BOUND_FACTS:
            require_fact(fact, bound.get(fact, "nothing"))
    check_model(model, data)
    test, training = evaluate(model, stored.vector, data.test, data.collate, device), None
    if training_loss:
        samples = training_samples(data)
        training = evaluate(model, stored.vector, samples, data.collate, device).mean_loss
    floor, loss = majority_rate(data.test.y), test.mean_loss
    return StoredQuality(
        test.accuracy, loss, floor, test.samples, training, perplexity(data.form.task, loss)
    )


def write_adapter(
    vector: ParameterVector, configuration: Configuration, document: RunDocument, folder: Path
) -> None:
    """Write adapters, or replace them, in a folder that `peft.PeftModel.from_pretrained` reads."""
    data, model = _inputs_of(configuration)
    require_bound_inputs(document, configuration, model, data)
    module = model.module()
    if not isinstance(module, AdaptedModel):
        raise ConfigurationError(f"--format peft: the model {model.name!r} has no adapters")
    load_vector(module, torch.tensor(vector))
    module.save_adapter(folder)


def _inputs_of(configuration: Configuration) -> tuple[FederatedData, Model]:
    clients, rng = configuration.protocol.clients, named_stream(configuration.seed, "data")
    if configuration.data.name == OWN.name:
        options = parse_settings(OwnOptions, configuration.data.options, "data.options")
        data = trial_data(options, clients, rng)
    else:
        data = load_dataset(configuration.data.choice(), clients, rng)
    return data, model_named(configuration.model.name, data.form, configuration.model.options)


def _require_tensors_of(model: Model, stored: StoredModel) -> None:
    for found, expected in zip(stored.layout, model.layout, strict=False):
        if found != expected:
            raise ConfigurationError(
                f"the file holds tensor {found[0]!r} of shape {found[1]} where model "
                f"{model.name!r} has {expected[0]!r} of shape {expected[1]}"
            )
    if len(stored.layout) != len(model.layout):
        raise ConfigurationError(
            f"the file holds {len(stored.layout)} tensors, and model {model.name!r} has "
            f"{len(model.layout)}"
        )
