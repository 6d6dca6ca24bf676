"""One round in plain words: participants, dropouts with reasons, ranking, votes and election.

The sentences report what chain and record claim; the audit verifies it. The rules describe
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledger.history.round import Documents, HistoryRound, RoundStatus, missing_payloads
from ledger.protocol import ledger_state, types
from ledger.protocol.documents.record import RoundRecord
from ledger.protocol.documents.run import RunDocument
from ledger.protocol.encoding import word_client, word_distance
from ledger.protocol.inputs import RoundSizes
from ledger.protocol.rules.direction import RIGHT_ANGLE
from ledger.storage.blobs import BlobReader


def explain_round(
    round_: HistoryRound,
    documents: Documents,
    document: RunDocument | None,
    reports: Sequence[ledger_state.EquivocationReport | None] | None = None,
) -> list[str]:
    """Return a round in plain words, one or two sentences per line.

    Without the run's `document`, its details are omitted. `reports` are the proofs of the round's
    bans, in their order; None where they are not available.
    """
    proofs = reports or [None] * len(round_.bans)
    lines = _participation(round_)
    lines += [
        f"Client {client} was banned during the round, with effect from the next round: it "
        f"{ledger_state.SIGNED_TWICE[None if report is None else report.kind]}."
        for client, report in zip(round_.bans, proofs, strict=True)
    ]
    if isinstance(round_.end, ledger_state.RoundAbandoned):
        drawn = _listed(round_.end.next_committee)
        lines.append(f"The model did not change. The seed drew a new committee: {drawn}.")
    if round_.decided is None:
        return lines
    if documents.record is None:
        lines.append(
            "The round's record is missing, so the reasons for dropouts and refused scores are "
            "unknown."
        )
    else:
        lines += _record(round_, documents.record)
    lines += _ranking(round_.decided, document)
    for phase in types.Phase:
        lines += _vote(round_.committee, round_.decided, documents, phase, document)
    lines.append(_election(round_.decided, round_.sizes))
    return lines


def explain_missing_payloads(documents: Documents, blobs: BlobReader) -> list[str]:
    """Return a sentence about the clients whose payloads are missing, if there are any."""
    gone = missing_payloads(documents, blobs)
    if not gone:
        return []
    return [
        f"{len(gone)} of {len(documents.payloads)} payloads are not stored here, from clients "
        f"{_listed(gone)}. Values that depend on them are shown, but cannot be checked."
    ]


def _participation(round_: HistoryRound) -> list[str]:
    sizes = f"{len(round_.trainers)} trainers and {len(round_.committee)} members"
    headlines = {
        RoundStatus.OPEN: f"{round_.round} is open, with {sizes}.",
        RoundStatus.ABANDONED: f"{round_.round}, with {sizes}, was abandoned at its deadline.",
        RoundStatus.DECIDED: f"{round_.round} was decided, with {sizes}.",
    }
    expected = sorted(round_.participants.expected)
    committed, counted = round_.commitments, round_.counted
    absent = [client for client in expected if client not in committed]
    late = [client for client in expected if client in committed.keys() - counted]
    participants = {*round_.trainers, *round_.committee}
    strays = [client for client in committed if client not in participants]
    lines = [
        f"Round {headlines[round_.status]}",
        f"Trainers are {_listed(round_.trainers)}; members are {_listed(round_.committee)}.",
    ]
    if round_.vacant_members:
        lines.append(f"Banned members with empty seats: {_listed(round_.vacant_members)}.")
    lines.append(f"{len(counted)} of {len(expected)} of these clients committed to an update.")
    if absent:
        lines.append(f"Clients without a commitment: {_listed(absent)}.")
    if late:
        lines.append(f"Late commitments, without effect: {_listed(late)}.")
    if strays:
        lines.append(f"Commitments of inactive clients, without effect: {_listed(strays)}.")
    return lines


def _record(round_: HistoryRound, record: RoundRecord) -> list[str]:
    lines = [
        f"Client {dropout.client} was left out: {types.DROPOUTS[dropout.reason]}."
        for dropout in record.dropouts
        if dropout.client not in round_.vacant_members
    ]
    counted = [signed.scores.member for signed in record.scores]
    shown = f"{len(counted)} of {len(round_.committee)} members count: {_listed(counted)}"
    lines.append(f"The scores of {shown}.")
    refused = {entry.signed.scores.member: entry for entry in record.refused}
    for member, entry in refused.items():
        reason = types.REFUSALS[entry.reason]
        if entry.reason is types.RefusalReason.FALSE_DISTANCE:
            reason = f"its distance to client {entry.client} is false"
        lines.append(f"The scores of member {member} were left out: {reason}.")
    left_out = {dropout.client for dropout in record.dropouts}
    silent = set(round_.committee).difference(counted, refused, left_out)
    if silent:
        lines.append(f"Members without recorded scores: {_listed(sorted(silent))}.")
    return lines


def _ranking(event: ledger_state.RoundDecided, document: RunDocument | None) -> list[str]:
    ranked, accepted = len(event.ranking), set(event.accepted)
    lines = [f"{ranked} trainers were ranked by {_rule(event, document)}"]
    for place, word in enumerate(event.ranking, start=1):
        client = word_client(word)
        verdict = "accepted" if client in accepted else "not accepted"
        lines.append(
            f"  rank {place:3d} of {ranked}: client {client}, distance "
            f"{word_distance(word):.6g}: {verdict}"
        )
    return lines


def _rule(event: ledger_state.RoundDecided, document: RunDocument | None) -> str:
    accepted = len(event.accepted)
    if document is None or not accepted:
        return f"their distances to the members; {accepted} were accepted."
    parameters = document.parameters
    distances = {word_client(word): word_distance(word) for word in event.ranking}
    edge = distances[event.accepted[0 if parameters.form is types.AcceptanceForm.LAST else -1]]
    if not parameters.compares_directions:
        selection = (
            f"the {accepted} nearest were accepted, up to distance {edge:.6g}."
            if parameters.form is types.AcceptanceForm.FIRST
            else f"the {accepted} farthest were accepted, from distance {edge:.6g} on."
        )
        return f"the mean of their {parameters.distance_sentence} to the members; {selection}"
    along = " along the model's travel and" if event.round > 1 else ""
    selection = f"the {accepted} below a right angle were accepted, clipped and weighted equally"
    if edge >= RIGHT_ANGLE:
        selection = f"none is below a right angle, so the {accepted} nearest were accepted"
    return (
        f"the mean of their {parameters.distance_sentence} to the round's other updates,{along} "
        f"apart from crowds; {selection}."
    )


def _vote(
    committee: tuple[types.ClientId, ...],
    event: ledger_state.RoundDecided,
    documents: Documents,
    phase: types.Phase,
    document: RunDocument | None,
) -> list[str]:
    name = types.PHASES[phase]
    lines = [
        f"The sender of the decision reports on view {incident.view + 1} of {name}: member "
        f"{incident.member} {types.INCIDENTS[incident.kind]}."
        for incident in documents.reported_incidents
        if incident.phase is phase
    ]
    bits, view = event.signers[phase - 1], event.views[phase - 1]
    voters = [member for place, member in enumerate(committee) if bits >> place & 1]
    needed = f" ({document.parameters.replies} needed)" if document is not None else ""
    return [
        *lines,
        f"View {view + 1} decided {name}: primary {event.primaries[phase - 1]} sent the request, "
        f"and {len(voters)} members{needed} replied: {_listed(voters)}.",
    ]


def _election(event: ledger_state.RoundDecided, sizes: RoundSizes) -> str:
    elected, accepted = event.next_committee, len(event.accepted)
    if sizes.form is not types.AcceptanceForm.BELOW_TWO:
        places = {word_client(word): place for place, word in enumerate(event.ranking, start=1)}
        ranks = [places[client] for client in elected]
        span = f"{ranks[0]} to {ranks[-1]}" if ranks else "none"
        rule = f"the middle of the ranking, ranks {span}"
    elif accepted <= sizes.members:
        more = sizes.members - accepted
        rule = f"the {accepted} accepted" + (f" and the {more} ranked next" if more else "")
    else:
        rule = f"{sizes.members} of the {accepted} accepted, drawn by the next seed"
    return f"The next committee is {rule}: {_listed(elected)}."


def _listed(clients: Iterable[types.ClientId]) -> str:
    return ", ".join(str(client) for client in clients) or "none"
