"""What the tests of the protocol share: keys, a registry, and a round small enough for a pencil."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ledger.protocol import encoding
from ledger.protocol.encoding import RegisteredClient
from ledger.protocol.inputs import Evidence, Inputs, Participants, RoundClosing
from ledger.protocol.parameters import Parameters
from ledger.protocol.payloads import PAYLOAD_FORMS, Payload
from ledger.protocol.signing import KeySigner
from ledger.protocol.types import ClientId, Digest
from tests.support.keys import DOMAIN, ids, key_signers, registered
from tests.support.rounds import ClosedRound

SEED = Digest(bytes(32))
BASE = Digest(bytes([7]) * 32)

PENCIL = Parameters(
    clients=9,
    active_ppm=1_000_000,
    committee_ppm=333_333,
    aggregation_ppm=500_000,
    rounds=2,
    dimension=1,
    deadline_blocks=10,
)
"""Three members, six trainers, three of them accepted; two replies decide."""

digests = st.binary(min_size=32, max_size=32).map(Digest)
client_ids = st.integers(0, 2**32 - 1).map(ClientId)
distances = st.floats(0, allow_infinity=False, allow_nan=False).map(abs)
"""Non-negative and finite; never -0.0."""


def signers() -> tuple[KeySigner, ...]:
    """Return sixteen PUBLIC TEST KEYS, ascending by address as a registry must be."""
    return key_signers(16)


def registry_of(count: int, samples: int = 10) -> tuple[RegisteredClient, ...]:
    return registered(signers()[:count], samples)


def f32(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def small_round(
    updates: Mapping[int, Sequence[float] | bytes | float],
    *,
    parameters: Parameters = PENCIL,
    model: Sequence[float] = (0.0,),
    travel: Sequence[float] | None = None,
    uncommitted: Collection[int] = (),
    unpublished: Collection[int] = (),
    banned: Collection[int] = (),
    **changes: Any,
) -> ClosedRound:
    """Return a closed round."""
    parameters = replace(parameters, dimension=len(model), **changes)
    missing = {*uncommitted, *banned}
    payloads = {
        ClientId(i): payload_of(updates.get(i, 0.0), len(model), parameters.payload)
        for i in range(parameters.clients)
        if i not in missing
    }
    commitments = {c: encoding.commitment_of(c, encoding.sha256(p)) for c, p in payloads.items()}
    registry = tuple(
        replace(client, banned_in=1 if i in banned else 0)
        for i, client in enumerate(registry_of(parameters.clients))
    )
    inputs = Inputs(
        parameters=parameters,
        domain=DOMAIN,
        registry=registry,
        round=2,
        seed=SEED,
        participants=Participants(
            ids(*range(parameters.members)),
            ids(*range(parameters.members, parameters.clients)),
            frozenset(ids(*banned)),
        ),
        closing=RoundClosing(9, encoding.commitments_chain(commitments.items()), commitments),
    )
    published = payloads.keys() - set(unpublished)
    held = {client: Payload.of(payloads[client]) for client in sorted(published)}
    way = None if travel is None else f32(*travel)
    evidence = Evidence(f32(*model), held, {}, displacement=way, form=parameters.payload_form)
    return ClosedRound(inputs, evidence, signers())


def payload_of(
    update: Sequence[float] | bytes | float, dimension: int, form: str = "float32"
) -> bytes:
    """Return the bytes of an update; one number stands for as many as the model has."""
    if isinstance(update, bytes):
        return update
    values = [update] * dimension if isinstance(update, (int, float)) else update
    return bytes(PAYLOAD_FORMS[form].encode(f32(*values)))
