"""Resource limits of verifications."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MEBIBYTE = 2**20


class VerificationBounds(BaseModel):
    """Limits of one verification, and of their number.

    Attributes:
        memory_bytes: of memory that its process may ask for.
        cpu_seconds: of processor time.
        seconds: from its beginning to its end.
        waiting: how many may wait, of all deployments together; one runs at a time.
        kept: how many are kept, with their reports; the oldest go first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_bytes: Annotated[int, Field(ge=256 * MEBIBYTE, le=2**50)] = 4_096 * MEBIBYTE
    cpu_seconds: Annotated[int, Field(ge=1, le=10**7)] = 3_600
    seconds: Annotated[int, Field(ge=1, le=10**7)] = 3_600
    waiting: Annotated[int, Field(ge=0, le=1_000)] = 4
    kept: Annotated[int, Field(ge=1, le=10_000)] = 100

    @model_validator(mode="after")
    def _keeps_what_is_not_over(self) -> Self:
        if self.kept <= self.waiting:
            raise ValueError(f"kept = {self.kept} must be more than may wait, {self.waiting}")
        return self
