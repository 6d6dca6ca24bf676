"""Examples of the service's responses, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from api.http.endpoints import example_of


def example(kind: Any) -> Any:
    schema = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
    return example_of(schema, schema.get("$defs", {}))
