"""The configuration of a run: its sha256 is the contract's configHash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from ledger.protocol import canonical
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.errors import EncodingError, ParametersError
from ledger.protocol.parameters import Parameters, require_layout
from ledger.protocol.rules.distance import Layout
from ledger.protocol.types import NO_DIGEST, Address, Digest

MAX_SAMPLES = 2**53  # bound of Σ n_k: sums below it are exact in float64 too
MAX_SIZES = 16  # sizes in a tensor's shape; a document full of them would take a minute to multiply
_BOUND = ("model_source", "frozen_state", "data_root")
_DEFAULTS = {"distance": "squared", "payload": "float32"}  # omitted, so a run has one encoding
_DECLARED: dict[str, type] = get_type_hints(Parameters)
_TYPES = {
    name: next(plain for plain in (bool, int, float, str) if issubclass(declared, plain))
    for name, declared in _DECLARED.items()
}
"""Type of each setting in the document; enumerations are text."""


@dataclass(frozen=True, slots=True)
class RunDocument:
    """The configuration of a run."""

    parameters: Parameters
    registry: tuple[RegisteredClient, ...]  # index by index, addresses ascending
    initial_model: Digest  # sha256 of w_1
    layout: Layout  # in the order in which a flat vector joins the tensors
    experiment: Mapping[str, Any]  # the trainer's own settings; opaque to an auditor
    model_source: Digest = NO_DIGEST  # sha256 of a file, or `source_of_package`; zeros: built in
    frozen_state: Digest = NO_DIGEST  # `inputs.frozen_state` of the model; zeros if it has none
    data_root: Digest = NO_DIGEST


def encode_run(document: RunDocument) -> bytes:
    """Return the bytes of a run's configuration."""
    settings = {
        name: plain(getattr(document.parameters, name))
        for name, plain in _TYPES.items()
        if getattr(document.parameters, name) != _DEFAULTS.get(name)
    }
    return canonical.document(
        parameters=settings,
        registry=[[client.address, client.samples] for client in document.registry],
        initial_model=document.initial_model,
        layout=[[name, list(shape)] for name, shape in document.layout],
        experiment=dict(document.experiment),
        model_source=document.model_source,
        frozen_state=document.frozen_state,
        data_root=document.data_root,
    )


def decode_run(data: bytes) -> RunDocument:
    """Return the run's configuration behind a blob, with its invariants checked."""
    types = {"parameters": dict, "registry": list, "initial_model": bytes, "layout": list}
    types |= {"experiment": dict} | dict.fromkeys(_BOUND, bytes)
    value = canonical.versioned_fields("run document", canonical.decode(data), types)
    settings = canonical.exact_fields(value["parameters"], _expected(value["parameters"]))
    try:
        parameters = Parameters(**{name: _DECLARED[name](v) for name, v in settings.items()})
        layout = tuple(map(_tensor, value["layout"]))
        require_layout(layout, parameters.dimension)
    except (ValueError, ParametersError) as error:
        raise EncodingError(f"parameters: {error!s:.200}") from error
    registry = []
    for entry in value["registry"]:
        address, samples = canonical.row(entry, 2)
        if not (claimed := canonical.unsigned("samples", samples, 64)):
            raise EncodingError("a registered client claims at least one sample")
        account = Address(canonical.fixed_bytes("address", address, 20))
        registry.append(RegisteredClient(account, claimed))
    if len(registry) != parameters.clients:
        raise EncodingError(f"{len(registry)} registered clients are not {parameters.clients}")
    canonical.require_ascending("addresses", [client.address for client in registry])
    total = sum(client.samples for client in registry)
    if total >= MAX_SAMPLES:
        raise EncodingError(f"the clients claim {total} samples; must be fewer than 2^53")
    model = canonical.digest(value["initial_model"])
    bound = {name: canonical.digest(value[name]) for name in _BOUND}
    return RunDocument(parameters, tuple(registry), model, layout, value["experiment"], **bound)


def _expected(settings: Mapping[str, Any]) -> dict[str, type]:
    for name, default in _DEFAULTS.items():
        if settings.get(name) == default:
            raise EncodingError(f"parameters: {name} = {default} is the default; omit it")
    omitted = _DEFAULTS.keys() - settings.keys()
    return {name: plain for name, plain in _TYPES.items() if name not in omitted}


def _tensor(entry: object) -> tuple[str, tuple[int, ...]]:
    name, shape = canonical.row(entry, 2)
    if type(name) is not str or type(shape) is not list:
        raise EncodingError(f"{entry!r:.80} is not a tensor's name and shape")
    if len(shape) > MAX_SIZES:
        raise EncodingError(f"a tensor's shape has {len(shape)} sizes, and at most {MAX_SIZES}")
    return name, tuple([canonical.unsigned("size", size, 32) for size in shape])
