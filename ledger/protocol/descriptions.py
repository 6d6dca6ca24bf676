"""Descriptions of the protocol's codes, for reports of rounds and of audits."""

from __future__ import annotations

from ledger.protocol.types import DropoutReason, IncidentKind, Phase, RefusalReason

DROPOUTS: dict[DropoutReason, str] = {
    DropoutReason.NO_COMMITMENT: "it had not committed by the closing block",
    DropoutReason.PAYLOAD_MISSING: "its payload was missing",
    DropoutReason.PAYLOAD_MALFORMED: "its payload is no update of the model",
}

REFUSALS: dict[RefusalReason, str] = {
    RefusalReason.NOT_A_VECTOR: "what it published is no score vector",
    RefusalReason.OF_ANOTHER: "its vector is of another round, member or base",
    RefusalReason.NO_USABLE_UPDATE: "it has no update to score by",
    RefusalReason.OTHER_CLIENTS: "its vector scores other clients than it claims",
    RefusalReason.OUT_OF_RANGE: "a distance is out of range",
    RefusalReason.FALSE_DISTANCE: "a distance is false",
    RefusalReason.TWO_VECTORS: "it signed two different vectors",
}

PHASES: dict[Phase, str] = {Phase.AGGREGATION: "the aggregation", Phase.ELECTION: "the election"}

INCIDENTS: dict[IncidentKind, str] = {
    IncidentKind.SILENT: "sent no request as primary",
    IncidentKind.NO_QUORUM: "found no quorum for its request",
    IncidentKind.WRONG_PROPOSAL: "signed a wrong request",
    IncidentKind.EQUIVOCATION: "signed two different votes",
}
