"""Options that name the witnesses of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cmfl.witnessing import Witnesses

WITNESS_POLICY = typer.Option(
    "--witness-policy",
    help="Known logs and witnesses, and how many of these are enough: a file as "
    "c2sp.org/tlog-policy has it.",
)
WitnessPolicyFile = Annotated[Path | None, WITNESS_POLICY]


@dataclass(frozen=True, slots=True)
class WitnessOptions:
    """Whom to ask what they have seen of a run."""

    witness_policy: WitnessPolicyFile = None
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="URL, folder or file of a log's checkpoint, beside the URLs of the policy; may be "
            "repeated.",
        ),
    ] = None
    checkpoint_max_age: Annotated[
        float | None,
        typer.Option(
            help="Hours since a witness has cosigned, for its word to count; 24 if not given."
        ),
    ] = None

    def witnesses(self) -> Witnesses | None:
        """Return whom to ask; None for nobody."""
        from cmfl.witnessing import witnesses_of

        places = tuple(self.checkpoint or ())
        return witnesses_of(self.witness_policy, places, self.checkpoint_max_age)
