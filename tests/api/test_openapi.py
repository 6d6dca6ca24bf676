"""The document says what the service does, and its examples are what it says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from api.app import create_app
from api.http.problems import MEDIA_TYPE, FieldError, Problem
from api.schemas import clients, deployments, evidence, rounds, series, service, words
from api.schemas.words import Schema, example_of
from api.settings import Settings
from ledger.protocol.rules import registry
from ledger.protocol.types import DropoutReason, Form, IncidentKind, RefusalReason

if TYPE_CHECKING:
    from enum import IntEnum
    from pathlib import Path

    import httpx

ANSWERS = {
    kind.__name__: kind
    for module in (words, clients, deployments, evidence, rounds, series, service)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Schema)
} | {"Problem": Problem, "FieldError": FieldError}


NO_JSON = ("/events", "/{digest}", "/bundle", "/proof/{client}")
"""Paths that answer with a stream or with bytes."""


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    answer = client.get("/openapi.json")
    assert answer.status_code == 200
    return dict(answer.json())


def test_every_endpoint_of_the_issue_is_there(document: dict[str, Any]) -> None:
    chain = "/v1/chains/{chain}/deployments"
    deployment = f"{chain}/{{address}}"
    one = f"{deployment}/rounds/{{number}}"
    parts = ("updates", "scores", "votes", "committee", "aggregation", "explanation")
    assert set(document["paths"]) == {
        *("/health", "/ready", "/v1/status", "/v1/chains", chain, deployment),
        *(f"{deployment}/rounds", one, *(f"{one}/{part}" for part in parts)),
        *(f"{deployment}/clients", f"{deployment}/clients/{{number}}"),
        f"{deployment}/clients/{{number}}/rounds",
        *(f"{one}/proof/{{client}}", f"{one}/bundle"),
        *(f"{deployment}/{part}" for part in ("evidence", "series", "events")),
        *("/v1/blobs/{digest}", "/v1/blobs/{prefix}/{digest}"),
    }


def test_everything_only_reads_and_is_described(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        assert set(methods) == {"get"}, path
        operation = methods["get"]
        assert operation["summary"]
        assert operation["description"]
        assert set(operation["tags"]) <= tags
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (path, parameter)


def test_every_number_in_a_request_has_its_bounds(document: dict[str, Any]) -> None:
    numbers = 0
    for path, methods in document["paths"].items():
        for parameter in methods["get"].get("parameters", []):
            schema = parameter["schema"]
            kinds = [one for one in schema.get("anyOf", [schema]) if one.get("type") == "integer"]
            for kind in kinds:
                numbers += 1
                assert {"minimum", "maximum"} <= set(kind), (path, parameter["name"])
    assert numbers > 10


def test_every_answer_has_an_example_that_its_schema_accepts(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for status, answer in methods["get"]["responses"].items():
            if status == "304":
                continue
            media_type = "application/json" if status == "200" else MEDIA_TYPE
            content = answer["content"]
            if status == "200" and path.endswith(NO_JSON):
                continue
            assert set(content) == {media_type}, (path, status)
            name = content[media_type]["schema"]["$ref"].rpartition("/")[2]
            ANSWERS[name].model_validate(content[media_type]["example"])


def test_every_schema_has_an_example_that_it_accepts(document: dict[str, Any]) -> None:
    for name, schema in document["components"]["schemas"].items():
        assert schema["description"], name
        (example,) = schema["examples"]
        if "enum" in schema:
            assert example in schema["enum"]
        else:
            ANSWERS[name].model_validate(example)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("DropoutWhy", DropoutReason),
        ("RefusalWhy", RefusalReason),
        ("IncidentWhat", IncidentKind),
        ("SelectionForm", Form),
    ],
)
def test_codes_and_names_are_those_of_the_protocol(
    document: dict[str, Any], schema: str, kind: type[IntEnum]
) -> None:
    told = document["components"]["schemas"][schema]["properties"]
    assert told["code"]["enum"] == [int(code) for code in kind]
    assert told["name"]["enum"] == [code.name.lower() for code in kind]


def test_rules_are_those_of_the_registry(document: dict[str, Any]) -> None:
    schemas_told = document["components"]["schemas"]
    run, strategy = (schemas_told[n]["properties"] for n in ("RunParameters", "SelectionStrategy"))
    assert strategy["number"]["enum"] == list(registry.SELECTIONS)
    assert strategy["name"]["enum"] == [rule.name for rule in registry.SELECTIONS.values()]
    for name, known in (
        ("scoring", registry.SCORINGS),
        ("distance", registry.DISTANCES),
        ("reference", registry.REFERENCES),
        ("threshold", registry.THRESHOLDS),
    ):
        assert run[name]["enum"] == list(known)


def test_whatever_is_not_verified_is_said_not_to_be(document: dict[str, Any]) -> None:
    assert "Nothing of it is verified by this service" in document["info"]["description"]
    for path, methods in document["paths"].items():
        if "/rounds" in path and not path.endswith(("/clients/{number}/rounds", "/bundle")):
            assert "verified here" in " ".join(methods["get"]["description"].split()), path


def test_problems_are_declared_wherever_they_come_from(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        declared = set(methods["get"]["responses"])
        assert "422" in declared
        assert ("503" in declared) == (path != "/health")
        assert ("404" in declared) == ("{" in path)
        parameters = {parameter["name"] for parameter in methods["get"].get("parameters", [])}
        assert ("400" in declared) == ("cursor" in parameters)
        assert "HTTPValidationError" not in str(methods)


def test_answers_are_what_their_schemas_say(
    client: httpx.Client, root: str, document: dict[str, Any]
) -> None:
    chain = root.split("/")[3]
    address = root.rpartition("/")[2]
    for path, methods in document["paths"].items():
        if path.endswith(NO_JSON):
            continue
        answer = client.get(
            path.replace("{chain}", chain).replace("{address}", address).replace("{number}", "2")
        )
        content = methods["get"]["responses"]["200"]["content"]["application/json"]
        name = content["schema"]["$ref"].rpartition("/")[2]
        ANSWERS[name].model_validate_json(answer.content)


def test_an_example_needs_every_field_to_have_one() -> None:
    class Bare(BaseModel):
        number: int

    with pytest.raises(TypeError, match="has no example"):
        example_of(Bare)


def test_no_number_can_be_infinite_or_nan() -> None:
    example = example_of(rounds.Threshold)
    for value in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="finite number"):
            rounds.Threshold.model_validate(example | {"value": value})


def test_the_page_for_people_fetches_nothing_from_elsewhere(client: httpx.Client) -> None:
    answer = client.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.findall(r"<script|src=|href=\"http|url\(", answer.text)
    assert "/v1/chains/{chain}/deployments/{address}/rounds/{number}/votes" in answer.text


def test_other_origins_get_no_permission(client: httpx.Client) -> None:
    answer = client.get("/health", headers={"Origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_making_the_app_opens_nothing(tmp_path: Path) -> None:
    create_app(Settings(home=tmp_path / "none"))
    assert not (tmp_path / "none").exists()
