"""The words for an audit's codes: sentences are made here, when they are read.

Values are put into the sentences as `plain` text, so that nothing that others wrote, a node's
error for one, can be more than text where a sentence is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.audit.codes import BlobKind, Fact, FindingKind, Need
from ledger.protocol.descriptions import DROPOUTS, PHASES, REFUSALS
from ledger.protocol.ledger_state import StatementKind
from ledger.protocol.types import DropoutReason, RefusalReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledger.protocol.types import ClientId

MOST_CHARACTERS = 300
"""Of a text that others wrote, a sentence holds no more."""

_STATEMENTS: dict[StatementKind, str] = {
    StatementKind.REQUEST: "requests",
    StatementKind.REPLY: "replies",
    StatementKind.SCORES: "score vectors",
}

KEPT = frozenset({Fact.ROLLED_BACK, Fact.KEPT_HEAD, Fact.EARLIER_BLOCK, Fact.EARLIER_HEAD})
"""Contradictions of what was kept beside the record, not of what it says itself."""

_CONTRADICTIONS: dict[Fact, tuple[str, str]] = {
    Fact.CHAIN_UNREADABLE: ("the chain can be read", "it cannot: {true}"),
    Fact.CHAIN_FILE: ("the chain file is what the EVM made of it", "it is not: {true}"),
    Fact.ROLLED_BACK: (
        "this home has acknowledged block {subject}, {recorded}",
        "the chain does not have it, {true}: it was rolled back, by a backup or by damage",
    ),
    Fact.KEPT_HEAD: (
        "the head {recorded} was kept as one of this run",
        "none of its heads up to block {subject} is that one: it does not reach it, as an older "
        "copy of the run does not, or it is another run",
    ),
    Fact.EARLIER_BLOCK: (
        "the earlier audit ended with block {subject}, {recorded}",
        "that block is {true} here: another branch, or another chain",
    ),
    Fact.EARLIER_HEAD: (
        "the earlier audit ended with block {subject} and the head {recorded}",
        "the transactions up to there lead to {true}",
    ),
    Fact.STATE_UNREADABLE: ("the contract says where it stands", "it does not: {true}"),
    Fact.STATE: (
        "the contract's {subject} is {recorded}",
        "its transactions lead to {true}",
    ),
    Fact.LOGS_UNREADABLE: ("blocks {subject} are whole", "they are not: {true}"),
    Fact.LOG_ORDER: ("{recorded} follows {subject}", "a chain has its logs in ascending order"),
    Fact.LOG_ADDRESS: ("a log is of this contract", "it is of {true}"),
    Fact.BLOCK_UNREADABLE: ("block {subject} holds an event", "it cannot be read: {true}"),
    Fact.LOG_BLOCK: ("a log of block {subject} lies in {recorded}", "that block is {true}"),
    Fact.PARENT_BLOCK: ("block {subject} follows {recorded}", "the block before it is {true}"),
    Fact.DEPLOYMENT_UNLOGGED: (
        "clients are registered",
        "the log begins without LedgerDeployed, which the constructor makes",
    ),
    Fact.DEPLOYMENT_UNREADABLE: (
        "the contract names its parameters",
        "it does not: {true}",
    ),
    Fact.DEPLOYMENT_IMPOSSIBLE: (
        "the contract has {recorded} clients, trainers and members",
        "no contract of this code can",
    ),
    Fact.DEPLOYMENT: (
        "the contract's {subject} is {recorded}",
        "the configuration gives {true}",
    ),
    Fact.CODE: ("the code at {subject} is the contract's", "{true}"),
    Fact.CONFIGURATION: ("blob {recorded} is a run document", "it is not: {true}"),
    Fact.FIRST_MODEL: ("blob {recorded} is the first model", "it is not: {true}"),
    Fact.TRANSACTION: ("transaction {subject} made an event", "{true}"),
    Fact.REFUSED_CALL: (
        "the contract took transaction {subject}",
        "it refuses it: {true}",
    ),
    Fact.EVENT_COUNT: (
        "transaction {subject} made {recorded} events",
        "it made {true}",
    ),
    Fact.EVENT_MALFORMED: ("a log is an event of the contract", "it is not: {true}"),
    Fact.EVENT_KIND: ("the event is {recorded}", "its transaction made {true}"),
    Fact.EVENT_FIELD: ("{subject} is {recorded}", "its transaction gives {true}"),
    Fact.EVENT_UNFOUNDED: ("{subject} is {recorded}", "it follows as {true}"),
    Fact.ROUND_ORDER: ("round {recorded} is the next that ended", "round {true} is due"),
    Fact.INPUTS_OPEN: (
        "the round was decided in block {recorded}",
        "its inputs close with block {true}",
    ),
    Fact.BASE: (
        "the base is {recorded}",
        "the commitments up to the closing block {subject} make it {true}",
    ),
    Fact.REVEAL: (
        "the reveal is {recorded}",
        "the payloads of the ranked trainers give {true}",
    ),
    Fact.NOT_SAMPLED: ("sampled trainers only are ranked", "the seed samples {true}"),
    Fact.BLOB: ("the {subject} is blob {recorded}", "it is not: {true}"),
    Fact.RECORD_MALFORMED: ("blob {recorded} is the round's record", "it is not: {true}"),
    Fact.RECORD_OF_ANOTHER: (
        "the record is of this round and base",
        "it is of another round or base",
    ),
    Fact.RECORD_CLIENTS: (
        "the record tells of all who were active, and of nobody else",
        "of these it does not, or they were not active",
    ),
    Fact.OPENS_NO_COMMITMENT: (
        "the payload opens its commitment on the chain",
        "it opens no commitment that its client made in time",
    ),
    Fact.HAS_COMMITTED: ("it had not committed", "its commitment is on the chain in time"),
    Fact.HAS_NOT_COMMITTED: (
        "its payload is missing or malformed",
        "it had not even committed in time",
    ),
    Fact.UPDATE_MALFORMED: ("its update is usable", "its payload is no update of the model"),
    Fact.UPDATE_USABLE: ("its payload is malformed", "it is a usable update"),
    Fact.NO_MEMBER: (
        "its score vector is one of the committee's",
        "it is no member, or its seat is empty",
    ),
    Fact.CLAIM_NOT_SIGNED: ("it claims a score vector", "the claim is not signed by it"),
    Fact.VECTOR_TOO_LONG: (
        "its score vector counts or is refused",
        "that is over {true} bytes long, and no such vector is recorded at all",
    ),
    Fact.SCORES_COUNTED: ("its scores count", "{true}"),
    Fact.SCORES_REFUSED: ("its scores do not count: {recorded}", "that does not hold"),
    Fact.TOO_FEW_SCORES: (
        "{recorded} score vectors suffice",
        "the protocol needs {true}",
    ),
    Fact.TOO_FEW_TRAINERS: ("the trainers suffice", "fewer than a committee remain"),
    Fact.DISTANCE: ("its distance is {recorded}", "the counted scores make it {true}"),
    Fact.RANKING_RANGE: (
        "there is a ranking",
        "its words, clients or length are out of range, or it is not sorted",
    ),
    Fact.RANKED: (
        "those are ranked who have a usable update",
        "of these only one of both is true",
    ),
    Fact.THRESHOLD: ("the threshold is {recorded}", "the counted scores make it {true}"),
    Fact.ACCEPTED_SET: ("the accepted set is {recorded}", "the ranking gives {true}"),
    Fact.NEXT_COMMITTEE: ("the next committee is {recorded}", "the ranking gives {true}"),
    Fact.UPDATES_ROOT: ("the updates root is {recorded}", "the record's updates have {true}"),
    Fact.SCORES_ROOT: ("the scores root is {recorded}", "the record's scores have {true}"),
    Fact.MODEL: ("the model is {recorded}", "the accepted updates make it {true}"),
    Fact.MODEL_MALFORMED: ("blob {recorded} is a model", "it is not: {true}"),
    Fact.MODEL_NOT_FINITE: ("the model is usable", "it is not finite"),
}

_NEEDS: dict[Need, str] = {
    Need.DEPLOYMENT: "what was deployed is not known: {detail}",
    Need.CHAIN: "the chain cannot be read any further: {detail}",
    Need.CHAIN_FILE: "the chain file could not check itself: {detail}",
    Need.HEAD_NOTE: "the note of the newest acknowledged block cannot be read: {detail}",
    Need.CODE: "the contract's code cannot be had: {detail}",
    Need.STATE: "the contract's own state cannot be had: {detail}",
    Need.BLOCK: "a block cannot be had: {detail}",
    Need.HEAD_BLOCK: "whether the chain stayed as it was during the audit: {detail}",
    Need.REORGANISED: "the node's chain was reorganised during the audit: audit again",
    Need.LOGS: (
        "the node's logs do not add up to what the contract says, so that nothing follows from "
        "them: {detail}"
    ),
    Need.FINALITY: (
        "what looks like a contradiction ({detail}) rests on a block that may still be taken "
        "back: audit again when it is final"
    ),
    Need.KEPT_HEAD: "whether the run passes through {detail}, since it was not read to its end",
    Need.PARAMETERS: "the parameters are not known without run document {detail}",
    Need.CALL_DATA: (
        "what transaction {detail} asked for, and its signatures: its call data are not to be had, "
        "or not the ledger's"
    ),
    Need.ROUND_BEFORE: "seed and committee are not known without the round before",
    Need.BLOB: "the {subject} {detail} is missing",
    Need.BLOB_UNREADABLE: "the {subject} cannot be had: {detail}",
    Need.RECORD: "there is no readable record",
    Need.UPDATES: "there is no update",
    Need.VECTORS: "there is no score vector",
    Need.REFUSAL: "whether the scores were rightly refused",
    Need.RIGHT_VECTORS: "the counted score vectors cannot be put together",
    Need.MODEL_BEFORE: "the model before it is not known",
    Need.TRAVEL: "the two models that its distances stand on are not both known",
}

_FINDINGS: dict[FindingKind, str] = {
    FindingKind.FALSE_SCORES: "it published a false distance to client {named}, and was left out",
    FindingKind.REFUSED_SCORES: "its scores were left out: {reason}",
    FindingKind.TWO_VECTORS: "it signed two different score vectors for the same updates",
    FindingKind.SCORES_UNCHECKED: (
        "members of this run do not check scores: a false distance is counted like a true one"
    ),
    FindingKind.WRONG_PROPOSAL: "it signed a wrong request{place}",
    FindingKind.EQUIVOCATION: "it signed two different votes{place}",
    FindingKind.SILENT_PRIMARY: "as primary it is said to have sent no request{place}",
    FindingKind.NO_QUORUM: "its request is said to have found no quorum{place}",
    FindingKind.BAN: "it was banned for two different {statements}{place}",
    FindingKind.EMPTY_SEAT: "its seat is empty: it was banned before the round",
    FindingKind.SILENT_MEMBER: "no scores of this member are recorded",
    FindingKind.SCORES_NOT_DUE: (
        "no scores of it are due: its update, all zeros, has no distances that tell anything"
    ),
    FindingKind.DROPOUT: "it was left out: {reason}",
    FindingKind.STRAY_COMMITMENT: "it committed though it was neither trainer nor member",
    FindingKind.LATE_COMMITMENT: "it committed after the closing block, to no effect",
    FindingKind.EQUAL_PAYLOADS: "they committed to one and the same payload",
    FindingKind.ABANDONED_ROUND: (
        "the round ended at its deadline without a decision; the model stayed"
    ),
    FindingKind.PAYLOAD_APPEARED: (
        "its payload is there, though it is recorded as missing: nobody can know since when"
    ),
    FindingKind.INCIDENTS_MISSING: (
        "evidence that the round's incidents name is not to be had: whom it accused is not known"
    ),
}

_HEADS = {
    "": "before round 1",
    "RoundDecided": "after round {round}",
    "RoundAbandoned": "after round {round}, which was abandoned",
    "ClientBanned": "after a ban in round {round}",
}


def recorded_and_true(fact: Fact, subject: str, recorded: str, true: str) -> tuple[str, str]:
    """Return what the record says, and what is so, as two clauses.

    Args:
        fact: what is contradicted.
        subject: of what exactly.
        recorded: the recorded value.
        true: the true one.

    Returns:
        Clauses to follow "the record says that", unless the fact is one of `KEPT`, and "in truth".
    """
    values = {"subject": plain(subject), "recorded": plain(recorded), "true": plain(true)}
    one, other = _CONTRADICTIONS[fact]
    return one.format(**values), other.format(**values)


def missing(need: Need, subject: BlobKind | None, detail: str) -> str:
    """Return what could not be checked, or for want of what.

    Args:
        need: what is missing.
        subject: the kind of blob, if it is one.
        detail: digest or hash of what is missing.
    """
    text = _NEEDS[need].format(subject=subject or "", detail=plain(detail))
    return text.removesuffix(": ")


def happened(
    kind: FindingKind, *, reason: str = "", named: str = "", place: str = "", statements: str = ""
) -> str:
    """Return what a finding says.

    Args:
        kind: of the finding.
        reason: why, for what was left out.
        named: the client whose distance is false.
        place: in which view, to follow a sentence; empty if that is not known.
        statements: what was signed twice; empty if that is not known.
    """
    signed = statements or "statements"
    return _FINDINGS[kind].format(reason=reason, named=named, place=place, statements=signed)


def kept_head(head: str, round_number: int | None, event: str) -> str:
    """Return what became of a head that an auditor had kept.

    Args:
        head: 0x-hex.
        round_number: in or after which the run has it; None if it was not found.
        event: name of the event that made it; empty for the head that a run starts with.
    """
    if round_number is None:
        return f"The run was not found to pass through the head that you kept, {head}."
    place = _HEADS[event].format(round=round_number)
    return f"The run passes through the head that you kept, {head}, {place}."


def built_on(rounds: int, audits: int, head: str, report: str, *, is_found: bool) -> str:
    """Return what an audit takes from an earlier one.

    Args:
        rounds: how many it takes from it.
        audits: how many audits stand behind it, its own among them.
        head: with which it ended, 0x-hex.
        report: sha256 of its report, 0x-hex.
        is_found: whether the run was found to stand there.
    """
    if not is_found:
        return f"The run was not found to stand at {head}, where the earlier audit ended."
    by = "an earlier audit, which" if audits == 1 else f"{audits} earlier audits, which"
    what = {0: "No round", 1: "Round 1"}.get(rounds, f"Rounds 1 to {rounds}")
    return (
        f"{what} by {by} this one trusts: sha256 of its report {report}, head {head}. Their "
        f"transactions were replayed again; their records, blobs, distances and models were not "
        f"read."
    )


def why(
    code: DropoutReason | RefusalReason | StatementKind | None,
    victims: Sequence[ClientId] = (),
) -> str:
    """Return a reason, or what was signed twice, in words.

    Args:
        code: the reason, or the kind of statement.
        victims: to whose updates a distance is false, if anybody's.
    """
    if isinstance(code, DropoutReason):
        return DROPOUTS[code]
    if isinstance(code, RefusalReason):
        return REFUSALS[code] + (f": that to client {listed(victims)}" if victims else "")
    return "" if code is None else _STATEMENTS[code]


def where(round_number: int, phase: int, view: int) -> str:
    """Return where something was signed, to follow a sentence; a score vector has phase 0."""
    if phase == 0:
        return f" in round {round_number}"
    # Two votes for a phase that does not exist are two votes as well.
    known = {int(one): name for one, name in PHASES.items()}
    return f" in view {view + 1} of {known.get(phase, f'phase {phase}')} of round {round_number}"


def whom(round_number: int | None, clients: tuple[ClientId, ...]) -> str:
    """Return the round and the clients that a sentence is about; empty where it is about none."""
    who = [f"round {round_number}"] if round_number is not None else []
    if clients:
        who.append(f"client{'s' * (len(clients) > 1)} {listed(clients)}")
    return f"{', '.join(who)}: " if who else ""


def listed(values: Sequence[int], most: int = 20) -> str:
    """Return numbers as text, the first of them if there are many."""
    text = ", ".join(str(value) for value in values[:most])
    return text if len(values) <= most else f"{text} and {len(values) - most} more"


def hexed(digest: bytes) -> str:
    """Return bytes as 0x-hex."""
    return f"0x{digest.hex()}"


def text_of(value: object, most: int = 16) -> str:
    """Return a recorded value as text: bytes as 0x-hex, tuples up to so many entries."""
    if isinstance(value, bytes):
        return hexed(value)
    if isinstance(value, tuple):
        rest = f", ... {len(value)} in all" if len(value) > most else ""
        return f"({', '.join(text_of(entry) for entry in value[:most])}{rest})"
    return str(value)


def bounded(text: str) -> str:
    """Return no more of a text that others wrote than a sentence holds."""
    return text[:MOST_CHARACTERS]


def plain(text: str) -> str:
    """Return text without line ends, control characters and the brackets of markup."""
    kept = "".join(c if c.isascii() and c.isprintable() else "?" for c in bounded(text))
    return kept.replace("[", "(").replace("]", ")")
