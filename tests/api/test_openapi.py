"""The document says what the service does, and its examples are what it says."""

from __future__ import annotations

import json
from enum import IntEnum
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from api import schemas
from api.app import create_app
from api.document import text
from api.http import answers as problems
from api.http.answers import ProblemKind
from api.http.endpoints import DETAILS, PUBLISHED
from api.routes import verifications
from api.schemas import MEDIA_TYPE, FieldError, Problem, Schema
from api.settings import Settings
from ledger.history import (
    answers_clients,
    answers_parts,
    answers_rounds,
    answers_signed,
    fields,
    training,
)
from ledger.protocol.parameters import STRATEGIES
from ledger.protocol.payloads import FLOAT32, PAYLOAD_FORMS
from ledger.protocol.types import AcceptanceForm, DropoutReason, IncidentKind, RefusalReason
from tests.api.conftest import refused
from tests.api.examples import example
from tests.patience import PATIENCE_SECONDS

ANSWERS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind)
    for module in (
        *(fields, answers_clients, answers_parts, answers_rounds, answers_signed),
        *(training, schemas, verifications),
    )
    for kind in vars(module).values()
    if is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, Schema))
} | {
    route.response_model.__name__: TypeAdapter(route.response_model)
    for route in create_app(Settings(home=Path())).routes
    if isinstance(route, APIRoute) and route.response_model is not None
}
"""The type of every answer and of its parts; a route may define its answer itself."""
ANSWERS |= {"Problem": TypeAdapter(Problem), "FieldError": TypeAdapter(FieldError)}
ANSWERS |= {name: ANSWERS[own] for own, name in PUBLISHED.items() if own in ANSWERS}


NO_JSON = (
    *("/events", "/blobs/{digest}", "/{prefix}/{digest}", "/bundle"),
    *("/proof/{client}", "/report"),
)
"""Paths that answer with a stream or with bytes."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(json.loads(text()))


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def name_of(schema: dict[str, Any]) -> str:
    return str(schema["$ref"].rpartition("/")[2])


def test_the_file_is_what_the_service_says(client: httpx.Client, document: dict[str, Any]) -> None:
    """A client is made of the file: `python -m api.document > docs/openapi.json` writes it."""
    file = json.loads(Path("docs/openapi.json").read_bytes())
    assert file == document
    assert client.get("/openapi.json", timeout=PATIENCE_SECONDS).json() == document


def test_endpoints_read_and_are_described(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for method, path, operation in operations(document):
        assert method == "get" or "/verifications" in path
        assert operation["summary"]
        assert operation["description"]
        assert set(operation["tags"]) <= tags
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (path, parameter)


def test_every_number_in_a_request_has_its_bounds(document: dict[str, Any]) -> None:
    numbers = 0
    for _, path, operation in operations(document):
        for parameter in operation.get("parameters", []):
            schema = parameter["schema"]
            kinds = [one for one in schema.get("anyOf", [schema]) if one.get("type") == "integer"]
            for kind in kinds:
                numbers += 1
                assert {"minimum", "maximum"} <= set(kind), (path, parameter["name"])
    assert numbers > 10


def test_every_answer_has_an_example_that_its_schema_accepts(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        for status, answer in operation["responses"].items():
            if status in {"204", "206", "304"} or (status == "200" and path.endswith(NO_JSON)):
                continue
            media_type = "application/json" if status.startswith("2") else MEDIA_TYPE
            content = answer["content"][media_type]
            if status.startswith("2"):
                ANSWERS[name_of(content["schema"])].validate_python(content["example"])
                continue
            assert set(answer["content"]) == {media_type}, (path, status)
            for name, shown in content["examples"].items():
                assert shown == {"$ref": f"#/components/examples/{name}"}
                told = Problem.model_validate(document["components"]["examples"][name]["value"])
                assert told.type == f"urn:cmfl:problem:{name}"
                assert told.status == int(status)


def test_every_problem_kind_has_an_example_and_a_declaration(document: dict[str, Any]) -> None:
    kinds = {kind for kind in vars(problems).values() if isinstance(kind, ProblemKind)}
    assert set(DETAILS) == kinds
    assert set(document["components"]["examples"]) == {kind.name for kind in kinds}
    declared = {
        name
        for _, _, operation in operations(document)
        for answer in operation["responses"].values()
        for name in answer.get("content", {}).get(MEDIA_TYPE, {}).get("examples", {})
    }
    assert declared == {kind.name for kind in kinds}


def test_a_body_that_is_no_text_is_an_invalid_request(client: httpx.Client, root: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post(f"{root}/verifications", content=b"\x06\x80z", headers=headers)
    told = refused(answer, 422, "request-invalid")
    assert told["detail"] == "body: must be JSON in UTF-8, without huge numbers"


def test_every_schema_has_an_example_that_it_accepts(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        assert schema["description"], name
        (shown,) = schema["examples"]
        if "enum" in schema:
            assert shown in schema["enum"]
        else:
            ANSWERS[name].validate_python(shown)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("DropoutWhy", DropoutReason),
        ("RefusalWhy", RefusalReason),
        ("IncidentWhat", IncidentKind),
        ("SelectionForm", AcceptanceForm),
    ],
)
def test_codes_are_those_of_protocol(
    document: dict[str, Any], schema: str, kind: type[IntEnum]
) -> None:
    told = document["components"]["schemas"][schema]["properties"]
    assert told["code"]["enum"] == [int(code) for code in kind]
    assert told["name"]["enum"] == [code.name.lower() for code in kind]


def test_rules_are_those_of_the_registry(document: dict[str, Any]) -> None:
    schemas_told = document["components"]["schemas"]
    run, strategy = (schemas_told[n]["properties"] for n in ("RunParameters", "SelectionStrategy"))
    assert strategy["number"]["enum"] == list(STRATEGIES)
    assert strategy["name"]["enum"] == list(STRATEGIES.values())
    # A user's own distance is none of them, so that these are no enumeration.
    assert run["distance"]["description"].startswith("squared, direction")
    assert [FLOAT32.name, *run["payload"]["enum"]] == list(PAYLOAD_FORMS)
    assert "payload" not in schemas_told["RunParameters"]["required"]


def test_problems_are_declared_wherever_they_come_from(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        declared = set(operation["responses"])
        assert "422" in declared
        assert ({"401", "429", "503"} <= declared) == (path != "/health")
        assert ("404" in declared) == ("{" in path)
        parameters = {parameter["name"] for parameter in operation.get("parameters", [])}
        assert ("416" in declared) == ("/blobs/" in path)
        assert ("400" in declared) == ("cursor" in parameters)
        assert "HTTPValidationError" not in str(operation)


def test_answers_fit_their_schemas(
    client: httpx.Client, root: str, document: dict[str, Any]
) -> None:
    chain = root.split("/")[3]
    address = root.rpartition("/")[2]
    for method, path, operation in operations(document):
        if path.endswith((*NO_JSON, "/{name}")) or method != "get":
            continue
        asked = path.replace("{chain}", chain).replace("{address}", address)
        answer = client.get(asked.replace("{number}", "2").replace("{digest}", "5c" * 32))
        content = operation["responses"]["200"]["content"]["application/json"]
        ANSWERS[name_of(content["schema"])].validate_json(answer.content)


def test_an_example_needs_every_field_to_have_one() -> None:
    class Bare(Schema):
        number: int

    with pytest.raises(TypeError, match="has no example"):
        example(Bare)
