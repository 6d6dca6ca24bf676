"""The OpenAPI document: examples for every answer, problems as their own media type."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi

from api.http.problem_docs import problem_examples
from api.schemas.problems import FieldError, Problem

if TYPE_CHECKING:
    from fastapi import FastAPI

TITLE = "CMFL ledger"
DESCRIPTION = """View of committee-based federated learning, as a chain records it.

Every answer is read as of one block and names it in `as_of`. The contract has enforced the data on
the chain. The committee's majority has voted for a round's record (payload digests, dropout
reasons, score claims), and incidents are claims of the decision's sender.
Nothing of it is verified by this service when it answers: `cmfl audit` verifies it, and
`verifications` run the same audit here, for clients that trust this service.

A round that ended in a final block never changes: its answers name the block that ended it and
carry a strong ETag and `Cache-Control: immutable`. All other answers are `no-cache` with a weak
ETag. Errors are `application/problem+json`. Reasons are codes of the protocol's documents, each
with a stable name, never sentences. 256-bit integers and float64 bit patterns are decimal strings,
bytes are 0x-hex, addresses EIP-55. Unknown query parameters are rejected."""
TAGS = [
    {"name": "service", "description": "Health, readiness and status."},
    {"name": "deployments", "description": "Contracts and their parameters."},
    {"name": "rounds", "description": "Rounds, their parts and events."},
    {"name": "clients", "description": "Clients and their rounds."},
    {
        "name": "proofs",
        "description": "Proofs and bundles, to check without trust in this service.",
    },
    {"name": "blobs", "description": "The documents, updates and models themselves."},
    {"name": "verifications", "description": "Audits that this service runs on request."},
]


_PUBLISHED = {"AuditOutcome": "Outcome"}
"""Components whose published name is not that of the class."""


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an app with all its routes."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    for name, published in _PUBLISHED.items():
        made = _renamed(made, name, published)
    schemas = made["components"]["schemas"]
    for kind in (Problem, FieldError):
        own = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        own.pop("$defs", None)
        schemas[kind.__name__] = own
    for schema in schemas.values():
        schema["examples"] = [example_of(schema, schemas)]
    for kind in (Problem, FieldError):
        schemas[kind.__name__] = dict(sorted(schemas[kind.__name__].items()))
    for operations in made["paths"].values():
        for operation in operations.values():
            for answer in operation["responses"].values():
                _add_example(answer, schemas)
    made["components"]["examples"] = problem_examples()
    return made


def _renamed(made: dict[str, Any], name: str, published: str) -> dict[str, Any]:
    """Return a document in which one component has another name."""
    path = '"#/components/schemas/{}"'
    text = json.dumps(made).replace(path.format(name), path.format(published))
    renamed: dict[str, Any] = json.loads(text)
    schemas = renamed["components"]["schemas"]
    schemas[published] = schemas.pop(name) | {"title": published}
    renamed["components"]["schemas"] = dict(sorted(schemas.items()))
    return renamed


def example_of(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return an example that a JSON schema accepts, built from the examples of its fields.

    Args:
        schema: every field has an example, or refers to a schema whose fields have.
        schemas: the components that references name.

    Raises:
        TypeError: a field has no example.
    """
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "properties" in schema:
        fields = {name: example_of(own, schemas) for name, own in schema["properties"].items()}
        return dict(sorted(fields.items()))
    for kind in schema.get("anyOf", ()):
        if kind.get("type") != "null":
            return example_of(kind, schemas)
    if "items" in schema:
        return [example_of(schema["items"], schemas)]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    raise TypeError(f"{schema} has no example")


def _add_example(answer: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add the schema's example to the endpoint."""
    content = answer.get("content", {}).get("application/json")
    if content is not None and "$ref" in content.get("schema", {}):
        name = content["schema"]["$ref"].rpartition("/")[2]
        content["example"] = schemas[name]["examples"][0]
