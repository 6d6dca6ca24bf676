"""A client's part in a round as a row, and the row as its part: the same after as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledger.history.participation import Participation, ParticipationCounts
from ledger.index.codes import OUTCOME, OUTCOMES, ROLE, ROLES, SCORES, SCORES_OF
from ledger.index.errors import IndexDamagedError
from ledger.index.packing import pack_plain, unpack_plain
from ledger.protocol.documents.incidents import Incidents, decode_incidents, encode_incidents
from ledger.protocol.documents.record import RefusedScores
from ledger.protocol.types import (
    DropoutReason,
    Phase,
    RefusalReason,
    Scores,
    SignedScores,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ledger.protocol.documents.incidents import Incident
    from ledger.protocol.types import Digest

Row = dict[str, Any]


def row_of(part: Participation, number: int, base: Digest | None) -> Row:
    """Return the row of a part, without its deployment.

    Args:
        part: what a client was and did.
        number: of the round.
        base: of its decision; None if it has none.
    """
    told = None
    if part.refused or part.incidents:
        refused = [_from_refused(entry) for entry in part.refused]
        told = pack_plain([refused, _from_incidents(part, number, base)])
    return {
        "client": part.client,
        "round": number,
        "role": ROLE[part.role],
        "outcome": OUTCOME[part.outcome],
        "place": part.place,
        "empty_seat": part.empty_seat,
        "committed": bool(part.committed),
        "rank": part.rank,
        "distance_bits": part.distance_bits,
        "dropout": None if part.dropout is None else int(part.dropout),
        "scores": SCORES[part.scores],
        "voted": _bits(part.voted),
        "primary_of": _bits(part.primary_of),
        "accused": len(part.incidents),
        "banned": part.banned,
        "commitment": part.commitment,
        "payload": part.payload,
        "told": told,
    }


def part_of(row: Mapping[str, Any]) -> Participation:
    """Return the part behind a row.

    Args:
        row: of the table of participations.

    Raises:
        IndexDamagedError: it is nothing that was written.
    """
    try:
        return _part(row)
    except (LookupError, ValueError) as error:
        raise IndexDamagedError(
            f"the index holds a part of client {row['client']} in round {row['round']} that is "
            f"nothing it has written ({type(error).__name__} {error!s:.60}): drop it and build it "
            "again"
        ) from error


def _part(row: Mapping[str, Any]) -> Participation:
    refused: tuple[RefusedScores, ...] = ()
    incidents: tuple[Incident, ...] = ()
    if row["told"] is not None:
        refused, incidents = unpack_plain(row["told"], lambda value: _told(row, value))
    return Participation(
        client=row["client"],
        role=ROLES[row["role"]],
        place=row["place"],
        empty_seat=bool(row["empty_seat"]),
        committed=bool(row["committed"]),
        commitment=row["commitment"],
        payload=row["payload"],
        outcome=OUTCOMES[row["outcome"]],
        rank=row["rank"],
        distance_bits=row["distance_bits"],
        dropout=None if row["dropout"] is None else DropoutReason(row["dropout"]),
        scores=SCORES_OF[row["scores"]],
        refused=refused,
        voted=_PHASES[row["voted"]],
        primary_of=_PHASES[row["primary_of"]],
        incidents=incidents,
        banned=bool(row["banned"]),
    )


def add_counts(found: dict[int, ParticipationCounts], parts: Iterable[Participation]) -> None:
    """Count parts in rounds that have ended.

    Args:
        found: the counts by client, which grow.
        parts: what was done.
    """
    for part in parts:
        found.setdefault(part.client, ParticipationCounts()).add(part)


def _bits(phases: tuple[Phase, ...]) -> int:
    return _BITS[phases]


def _phases(bits: int) -> tuple[Phase, ...]:
    return tuple(phase for phase in Phase if bits >> (phase - 1) & 1)


_PHASES = tuple(_phases(bits) for bits in range(1 << len(Phase)))
_BITS = {phases: bits for bits, phases in enumerate(_PHASES)}


def _from_refused(entry: RefusedScores) -> list[object]:
    claim = entry.signed.scores
    about = [claim.base, claim.clients, claim.digest, entry.signed.signature]
    return [*about, int(entry.reason), entry.client]


def _from_incidents(part: Participation, number: int, base: Digest | None) -> bytes | None:
    if not part.incidents or base is None:
        return None
    return encode_incidents(Incidents(number, base, part.incidents))


def _told(
    row: Mapping[str, Any], value: list[Any]
) -> tuple[tuple[RefusedScores, ...], tuple[Incident, ...]]:
    refused, incidents = value
    claims = tuple(_refused(row, entry) for entry in refused)
    return claims, () if incidents is None else decode_incidents(incidents).incidents


def _refused(row: Mapping[str, Any], entry: list[Any]) -> RefusedScores:
    base, clients, digest, signature, reason, client = entry
    claim = Scores(row["round"], row["client"], base, clients, digest)
    return RefusedScores(SignedScores(claim, signature), RefusalReason(reason), client)
