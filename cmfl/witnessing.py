"""Witnesses of a run: the policy that names them, and what they say before an audit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cmfl.arguments import naming
from ledger.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from ledger.transparency.checkpoints import CheckpointEvidence
    from ledger.transparency.policy import WitnessPolicy


MAX_AGE_HOURS = 1_000_000
"""Of a cosignature that counts."""


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Whom to ask about a run, and how recent their word has to be.

    Attributes:
        places: URLs, folders or files of checkpoints, beside the policy's URLs.
    """

    policy: WitnessPolicy
    places: tuple[str, ...]
    max_age_seconds: float

    def evidence(self, chain_id: int, address: str) -> CheckpointEvidence:
        """Return what logs and witnesses say of a run now; nothing of its chain is read."""
        from ledger.chain.addresses import to_canonical
        from ledger.protocol.types import Address
        from ledger.transparency.collecting import collect
        from ledger.transparency.tiles import run_suffix

        suffix = run_suffix(chain_id, Address(to_canonical(address)))
        logs = [log for log in self.policy.logs if log.name.endswith(suffix)]
        if not logs:
            named = ", ".join(log.name for log in self.policy.logs) or "none"
            raise ConfigurationError(
                f"the witness policy has no log of this run, whose origin ends with {suffix} (its "
                f"logs: {named})"
            )
        return collect(self.policy, logs, self.places, time.time, self.max_age_seconds)


def witnesses_of(
    policy: Path | None, places: Sequence[str], max_age_hours: float | None
) -> Witnesses | None:
    """Return whom to ask by a policy; None if there is none.

    Args:
        max_age_hours: of a cosignature that counts; None for the default.
    """
    from ledger.transparency.checkpoints import DEFAULT_MAX_AGE_SECONDS
    from ledger.transparency.policy import NONE

    # NaN is neither below nor above a bound, and would let any cosignature count.
    if max_age_hours is not None and not 0 <= max_age_hours <= MAX_AGE_HOURS:
        raise ConfigurationError(
            f"checkpoint max age {max_age_hours}: must be 0 to {MAX_AGE_HOURS} hours"
        )
    if policy is None:
        if places or max_age_hours is not None:
            raise ConfigurationError("a checkpoint is held against --witness-policy: give one")
        return None
    known = policy_in(policy)
    if known.quorum == NONE:
        raise ConfigurationError(
            f"--witness-policy {policy}: quorum none asks for no witness, and a log alone can "
            f"take back what it has signed"
        )
    seconds = DEFAULT_MAX_AGE_SECONDS if max_age_hours is None else max_age_hours * 3600
    return Witnesses(known, tuple(places), seconds)


def policy_in(path: Path) -> WitnessPolicy:
    """Return the policy in a file, as `--witness-policy` names it."""
    from ledger.io.home import read_file
    from ledger.transparency.policy import MAX_POLICY_BYTES, parse_policy

    with naming(f"--witness-policy {path}"):
        data = read_file(path, MAX_POLICY_BYTES)
    try:
        return parse_policy(data)
    except ConfigurationError as error:
        raise ConfigurationError(f"--witness-policy {path}: {error}") from error
