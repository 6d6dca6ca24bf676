"""Errors as `application/problem+json` (RFC 9457), as who asks reads them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MEDIA_TYPE = "application/problem+json"
MAX_SHOWN = 300
MAX_ERRORS = 20


class Schema(BaseModel):
    """No unknown fields, no NaN, no infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FieldError(Schema):
    """One value of the request that was refused."""

    place: Annotated[str, Field(max_length=20, examples=["query"])]
    name: Annotated[str, Field(max_length=100, examples=["limit"])]
    detail: Annotated[
        str, Field(max_length=MAX_SHOWN, examples=["Input should be less than or equal to 100"])
    ]


class Problem(Schema):
    """An error (RFC 9457)."""

    type: Annotated[str, Field(examples=["urn:cmfl:problem:request-invalid"])]
    title: Annotated[str, Field(examples=["The request is not valid"])]
    status: Annotated[int, Field(ge=400, le=599, examples=[422])]
    detail: Annotated[str, Field(examples=["query limit: Input should be at most 100"])]
    instance: Annotated[str, Field(examples=["/v1/chains"])]
    errors: Annotated[tuple[FieldError, ...] | None, Field(description="of an invalid request")] = (
        None
    )
