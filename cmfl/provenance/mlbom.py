"""The model of a run as a CycloneDX bill of materials for machine learning."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from cmfl.provenance.facts import RunFacts, utc
from ledger.protocol.encoding import sha256

BOM_FORMAT = "CycloneDX"
SPECIFICATION = "1.6"
PREFIX = "cmfl:"
ATTESTATIONS = f"{PREFIX}training:attestations"


def mlbom(facts: RunFacts) -> dict[str, Any]:
    """Return the bill of materials of the model after a round, as plain data for JSON."""
    parts = list(_parts(facts))
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": BOM_FORMAT,
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, _identity(facts))}",
        "version": 1,
        "metadata": {"timestamp": utc(facts.ended), "component": _model(facts)},
        "components": parts,
        "dependencies": [
            {"ref": "model", "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"]} for part in parts),
        ],
    }


def properties(facts: RunFacts) -> dict[str, str]:
    """Return what every document states of the run as text by name."""
    return dict(_flat(PREFIX.removesuffix(":"), facts.run_block()))


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for key, item in value.items():
                yield from _flat(f"{name}:{key}", item)
        case str():
            yield name, value
        case _:
            yield name, json.dumps(value, separators=(",", ":"))


def _identity(facts: RunFacts) -> str:
    return f"{facts.account}#{facts.head.hex()}"


def _model(facts: RunFacts) -> dict[str, Any]:
    name = str(facts.described("model").get("name", "model"))
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": name,
        "version": str(facts.round),
        "hashes": _sha256(sha256(facts.model_file).hex()),
        "modelCard": {
            "modelParameters": {"modelArchitecture": name, "datasets": [{"ref": "data"}]},
            "properties": _listed(
                {
                    f"{PREFIX}settings:{section}": json.dumps(values, sort_keys=True)
                    for section, values in facts.settings().items()
                }
            ),
        },
        "properties": _listed(properties(facts)),
    }


def _parts(facts: RunFacts) -> Iterator[dict[str, Any]]:
    """Yield what the model follows from, each with its digest."""
    data, document = facts.described("data"), facts.document
    yield {
        "type": "data",
        "bom-ref": "data",
        "name": str(data.get("name", "data")),
        "data": [{"type": "dataset", "name": str(data.get("name", "data"))}],
        "properties": _listed({f"{PREFIX}data_root": document.data_root.hex()}),
    }
    for name, algorithm, digits in facts.bound_inputs():
        if algorithm == f"{PREFIX}data_root":
            continue
        is_model = name == "initial model" or algorithm == f"{PREFIX}path"
        kind = "machine-learning-model" if is_model else "file"
        part = {"type": kind, "bom-ref": name, "name": name}
        if algorithm == "sha256":
            yield part | {"hashes": _sha256(digits)}
        else:
            yield part | {"properties": _listed({algorithm: digits})}


def _sha256(digits: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digits}]


def _listed(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]
