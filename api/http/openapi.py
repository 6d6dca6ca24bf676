"""The OpenAPI document: examples on every answer, problems as their own media type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi

from api.http.problem_docs import problem_examples
from api.schemas.problems import FieldError, Problem

if TYPE_CHECKING:
    from fastapi import FastAPI

TITLE = "CMFL ledger"
DESCRIPTION = """View of committee-based federated learning, as a chain records it.

Every answer is read as of one block and names it in `as_of`. What the chain says was enforced by
the contract. What a round's record says (payload digests, dropouts' reasons, score claims) is what
the committee's majority voted for, and what its incidents say is the word of whoever sent the
decision. Nothing of it is verified by this service as it tells it: `cmfl audit` does that, and
`verifications` run the same audit here, for whoever trusts it.

A round that ended in a final block never changes: its answers name the block that ended it and
carry a strong ETag and `Cache-Control: immutable`. All other answers are `no-cache` with a weak
ETag. Errors are `application/problem+json`. Reasons are numbers of the protocol's documents, each
with a stable name, never sentences. 256-bit integers and float64 bit patterns are decimal strings,
bytes are 0x-hex, addresses EIP-55. Unknown query parameters are refused."""
TAGS = [
    {"name": "service", "description": "Is it up, can it read, what does it serve."},
    {"name": "deployments", "description": "Contracts and their parameters."},
    {"name": "rounds", "description": "What happened, round by round."},
    {"name": "clients", "description": "Who takes part."},
    {"name": "proofs", "description": "What a caller checks without trusting this service."},
    {"name": "blobs", "description": "The documents, updates and models themselves."},
    {"name": "verifications", "description": "Audits that this service runs on request."},
]


def document(app: FastAPI) -> dict[str, Any]:
    """Return the app's OpenAPI document.

    Args:
        app: with all its routes.
    """
    made = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    schemas = made["components"]["schemas"]
    for kind in (Problem, FieldError):
        own = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        own.pop("$defs", None)
        schemas[kind.__name__] = own
    for schema in schemas.values():
        if "enum" in schema:
            schema.setdefault("examples", schema["enum"][:1])
    for operations in made["paths"].values():
        for operation in operations.values():
            for answer in operation["responses"].values():
                _add_example(answer, schemas)
    made["components"]["examples"] = problem_examples()
    return made


def _add_example(answer: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Show the schema's example at the endpoint too."""
    content = answer.get("content", {}).get("application/json")
    if content is not None and "$ref" in content.get("schema", {}):
        name = content["schema"]["$ref"].rpartition("/")[2]
        content["example"] = schemas[name]["examples"][0]
