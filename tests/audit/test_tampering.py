"""Tampering never passes: whatever a chain or a blob store changes, a step fails and says so.

Each table lists what can be changed and the steps of which one must fail. A change that an audit
lets pass is a survivor, and there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import decode, encode

from ledger.audit.checks.chain import (
    CHAIN_UNAVAILABLE,
    HEAD_BLOCK_UNAVAILABLE,
    KEPT_HEAD_UNCHECKED,
)
from ledger.audit.checks.rounds import BAN, BLOB_MISSING, CALL_DATA_UNAVAILABLE, DROPOUT
from ledger.audit.engine import AuditLog, audit
from ledger.audit.report import (
    MAX_FINDINGS,
    MAX_NAMED,
    AuditOutcome,
    AuditReport,
    AuditStep,
    BlobKind,
    CheckResult,
    Finding,
    MissingInput,
    StepOutcome,
)
from ledger.audit.report_text import readable
from ledger.chain.contract import abi
from ledger.chain.contract.codec import DecideCall, decode_call, decode_log, encode_call, encode_log
from ledger.chain.ports import Block, ChainDamagedError, Log, LogQuery, Transaction
from ledger.protocol.documents.record import decode_record, encode_record
from ledger.protocol.encoding import keccak256, sha256
from ledger.protocol.errors import ChainError
from ledger.protocol.ledger_state import LedgerStage, RoundDecided
from ledger.protocol.types import AcceptanceForm, ClientId, Digest
from ledger.storage.blobs import MemoryBlobs
from tests.audit.blobs import ChangedBlobs
from tests.audit.forged_chain import (
    answer_types,
    field_names,
    field_types,
    forged,
    input_types,
    variants,
    wrong_values,
)
from tests.audit.honest import honest_run
from tests.audit.remembered import remembered
from tests.audit.runs import Run
from tests.faults import times

DEPLOYMENT, HEAD, CERTIFICATES = {AuditStep.DEPLOYMENT}, {AuditStep.HEAD}, {AuditStep.CERTIFICATES}
SAMPLING, RANKING, COMPLETENESS = (
    {AuditStep.SAMPLING},
    {AuditStep.RANKING},
    {AuditStep.COMPLETENESS},
)
ANY = set(AuditStep)
WAYS = times(1, 100)  # in how many ways any but the first of many values is wrong
EVENT_FIELDS: dict[tuple[str, str], set[AuditStep]] = {
    ("LedgerDeployed", "salt"): DEPLOYMENT,
    ("ClientsRegistered", "first"): DEPLOYMENT,
    ("ClientsRegistered", "words"): DEPLOYMENT,
    ("LedgerOpened", "config"): DEPLOYMENT,
    ("LedgerOpened", "seed"): HEAD,
    ("LedgerOpened", "committee"): SAMPLING,
    ("LedgerOpened", "model"): DEPLOYMENT,
    ("UpdatesCommitted", "commitments"): CERTIFICATES,
    ("RoundDecided", "accepted"): RANKING | CERTIFICATES,
    ("RoundDecided", "next_committee"): RANKING | CERTIFICATES,
    ("RoundDecided", "next_seed"): HEAD,
    ("RoundDecided", "head"): HEAD,
    ("RoundAbandoned", "next_committee"): SAMPLING,
    ("RoundAbandoned", "next_seed"): HEAD,
    ("RoundAbandoned", "head"): HEAD,
    ("ClientBanned", "head"): HEAD,
} | {
    ("RoundDecided", name): CERTIFICATES
    for name in [
        *("ranking", "base", "model", "updates_root", "scores_root", "reveal", "record"),
        *("incidents", "views", "primaries", "signers"),
    ]
}
SIGNED = {"UpdatesCommitted", "RoundDecided", "ClientBanned"}
CALL_ARGUMENTS: dict[tuple[str, int], set[AuditStep]] = {
    (function, place): steps
    for function, arguments in {
        "register_clients": [DEPLOYMENT] * 2,
        "commit_updates": [COMPLETENESS, CERTIFICATES | COMPLETENESS, CERTIFICATES],
        "decide": [
            COMPLETENESS,
            SAMPLING,
            CERTIFICATES | RANKING | SAMPLING | COMPLETENESS,
            *[CERTIFICATES, CERTIFICATES | RANKING] * 3,
            CERTIFICATES,
        ],
        "abandon_round": [COMPLETENESS],
        "report_equivocation": [CERTIFICATES] * 8,
    }.items()
    for place, steps in enumerate(arguments)
}


def failing(report: AuditReport) -> set[AuditStep]:
    return {step.number for step in report.steps if step.outcome is StepOutcome.FAILED}


def require_failure(report: AuditReport, steps: set[AuditStep]) -> None:
    """The audit fails, and in one of these steps; each failure says what contradicts what."""
    assert report.outcome is AuditOutcome.FAILED, readable(report)
    assert failing(report) & steps, readable(report)
    for step in report.steps:
        if step.outcome is StepOutcome.FAILED:
            assert step.contradiction is not None
            assert "the record claims that" in step.contradiction.sentence
            assert "in fact" in step.contradiction.sentence
    assert readable(report)[-1].startswith("FAILED")
    assert not any("[" in line for line in readable(report)), "nothing there is markup"


def require_open(report: AuditReport) -> None:
    """Nothing contradicts, but signatures cannot be checked."""
    assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    step = report.step(AuditStep.CERTIFICATES)
    assert step.outcome is StepOutcome.NOT_CHECKABLE, readable(report)
    assert {missing.need for missing in step.missing} == {CALL_DATA_UNAVAILABLE}


def logs_of(run: Run) -> list[Log]:
    head = run.chain.head().number
    return run.chain.logs(LogQuery(run.ledger.address, [], 0, head))


def named(log: Log) -> str:
    events = {event for event, _ in EVENT_FIELDS}
    return next(event for event in events if abi.topic(event) == log.topics[0])


def all_named(run: Run, event: str) -> list[Log]:
    return [log for log in logs_of(run) if named(log) == event]


def decision_in(log: Log) -> RoundDecided:
    event = decode_log(log).event
    assert isinstance(event, RoundDecided)
    return event


def one_of_each(run: Run) -> list[Log]:
    return [*{named(log): log for log in logs_of(run)}.values()]


def tampered(run: Run, **changes: Any) -> AuditReport:
    return audit(forged(remembered(run.ledger), **changes), run.blobs)


def with_log(run: Run, true: Log, wrong: Log, **more: Any) -> AuditReport:
    return tampered(
        run, logs_of=lambda logs: [wrong if one == true else one for one in logs], **more
    )


def with_transaction(run: Run, transaction_hash: bytes, **changes: Any) -> AuditReport:
    return tampered(run, transaction_of=only(transaction_hash, **changes))


def only(transaction_hash: bytes, **changes: Any) -> Callable[[Transaction], Transaction]:
    return lambda one: replace(one, **changes) if one.hash == transaction_hash else one


def is_call(data: bytes) -> bool:
    try:
        decode_call(data)
    except ChainError:
        return False
    return True


def test_the_tables_name_every_field_and_every_argument() -> None:
    events = [entry for entry in abi.artifact().abi.values() if entry["type"] == "event"]
    fields = {(event["name"], name) for event in events for name in field_names(event["name"])}
    assert fields == set(EVENT_FIELDS)
    functions = [
        entry
        for entry in abi.artifact().abi.values()
        if entry["type"] == "function" and entry["stateMutability"] == "nonpayable"
    ]
    arguments = {(f["name"], place) for f in functions for place in range(len(f["inputs"]))}
    assert arguments == set(CALL_ARGUMENTS)


def test_a_chain_that_passes_everything_on_unchanged_passes(honest: Run) -> None:
    assert audit(forged(honest.ledger), honest.blobs).outcome == "passed"


@pytest.mark.parametrize(("event", "name"), EVENT_FIELDS)
def test_a_wrong_field_of_an_event_contradicts_its_transaction(
    honest: Run, event: str, name: str
) -> None:
    types, place = field_types(event), field_names(event).index(name)
    logs = all_named(honest, event)
    wrong = [
        (logs[0], one) for one in wrong_values(types, decode(types, logs[0].data), place, WAYS)
    ]
    assert wrong
    if len(logs) > 1:  # another round: one way of being wrong is enough there
        values = decode(types, logs[-1].data)
        wrong.append((logs[-1], next(wrong_values(types, values, place, WAYS))))
    for log, data in wrong:
        require_failure(with_log(honest, log, replace(log, data=data)), EVENT_FIELDS[event, name])


def test_who_was_drawn_is_drawn_again_also_without_call_data(tmp_path: Path) -> None:
    run = honest_run(tmp_path, Run.on_revm, strategy=3)
    log = all_named(run, "RoundDecided")[-1]
    event = decision_in(log)
    assert len(event.accepted) > len(event.next_committee), "there was a lot"
    other = next(c for c in event.accepted if c not in event.next_committee)
    drawn = {*event.next_committee[1:], other}
    wrong = replace(event, next_committee=tuple(c for c in event.accepted if c in drawn))
    _, data = encode_log(wrong)
    for more in ({}, {"transaction_of": lambda one: replace(one, input=b"")}):
        require_failure(with_log(run, log, replace(log, data=data), **more), RANKING)


def test_a_wrong_topic_of_an_event_contradicts_its_transaction(honest: Run) -> None:
    for log in one_of_each(honest):
        for place, topic in enumerate(log.topics):
            wrong = topic[:-1] + bytes([topic[-1] ^ 1])
            topics = (*log.topics[:place], wrong, *log.topics[place + 1 :])
            require_failure(with_log(honest, log, replace(log, topics=topics)), ANY)
        require_failure(with_log(honest, log, replace(log, topics=log.topics[:-1])), ANY)


def test_a_log_that_claims_another_place_is_found(honest: Run) -> None:
    for log in logs_of(honest):
        for wrong, steps in (
            (replace(log, address="0x" + "11" * 20), HEAD),
            (replace(log, block_number=log.block_number + 1), ANY),
            (replace(log, block_hash=bytes(32)), HEAD),
        ):
            require_failure(with_log(honest, log, wrong), steps)


def test_a_hidden_a_repeated_and_a_swapped_log_are_found(honest: Run) -> None:
    whole = logs_of(honest)

    def served_as(changed: list[Log]) -> AuditReport:
        return tampered(honest, logs_of=lambda logs: changed if logs == whole else logs)

    for at in range(len(whole)):
        require_failure(served_as(whole[:at] + whole[at + 1 :]), ANY)
        require_failure(served_as(whole[: at + 1] + whole[at:]), ANY)
    for at in range(len(whole) - 1):
        swapped = [*whole[:at], whole[at + 1], whole[at], *whole[at + 2 :]]
        require_failure(served_as(swapped), HEAD)


@pytest.mark.parametrize("missing", [1, 2, 3, 4, 5])
def test_a_missing_round_and_a_cut_off_end_are_found(honest: Run, missing: int) -> None:
    topics = (abi.topic("RoundDecided"), abi.topic("RoundAbandoned"), abi.topic("UpdatesCommitted"))

    def of_round(log: Log) -> int:
        return int.from_bytes(log.topics[1]) if log.topics[0] in topics else 0

    gone = tampered(honest, logs_of=lambda logs: [o for o in logs if of_round(o) != missing])
    require_failure(gone, HEAD | COMPLETENESS)
    cut = tampered(honest, logs_of=lambda logs: [o for o in logs if of_round(o) < missing])
    require_failure(cut, HEAD)
    assert cut.rounds < 5


def test_two_swapped_rounds_are_found(honest: Run) -> None:
    first, second = all_named(honest, "RoundDecided")[:2]
    swapped = {
        first: replace(first, topics=second.topics, data=second.data),
        second: replace(second, topics=first.topics, data=first.data),
    }
    report = tampered(honest, logs_of=lambda logs: [swapped.get(log, log) for log in logs])
    require_failure(report, CERTIFICATES)


@pytest.mark.parametrize(("function", "place"), CALL_ARGUMENTS)
def test_a_wrong_call_argument_is_refused_or_contradicts_the_event(
    honest: Run, function: str, place: int
) -> None:
    types, selector = input_types(function), abi.selector(function)
    sent = [honest.chain.transaction(log.transaction_hash) for log in logs_of(honest)]
    first, *others = dict.fromkeys(one for one in sent if one.input[:4] == selector)
    values = decode(types, first.input[4:])
    wrong = [(first, data) for data in wrong_values(types, values, place, WAYS)]
    assert wrong
    if others:  # another round: one way of being wrong is enough there
        values = decode(types, others[-1].input[4:])
        wrong.append((others[-1], next(wrong_values(types, values, place, WAYS))))
    for transaction, data in wrong:
        report = with_transaction(honest, transaction.hash, input=selector + data)
        if is_call(selector + data):
            require_failure(report, CALL_ARGUMENTS[function, place])
        else:
            require_open(report)


def test_every_signature_of_a_decision_counts(honest: Run) -> None:
    log = all_named(honest, "RoundDecided")[1]
    data = honest.chain.transaction(log.transaction_hash).input
    types = input_types("decide")
    values = decode(types, data[4:])

    def require_refused(place: int, wrong: object, steps: set[AuditStep]) -> None:
        call = data[:4] + encode(types, [*values[:place], wrong, *values[place + 1 :]])
        require_failure(with_transaction(honest, log.transaction_hash, input=call), steps)

    for at in (6, 8):
        certificate, replies = values[at : at + 2]
        for field, value in enumerate(certificate):
            for wrong in variants(value, WAYS):
                changed = (*certificate[:field], wrong, *certificate[field + 1 :])
                require_refused(at, changed, CERTIFICATES | RANKING)
        for place, (one, two) in enumerate(replies):
            for reply in ((flipped(one), two), (one, flipped(two))):
                changed = (*replies[:place], reply, *replies[place + 1 :])
                require_refused(at + 1, changed, CERTIFICATES)


def flipped(word: bytes) -> bytes:
    return word[:31] + bytes([word[31] ^ 1]) + word[32:]


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", bytes(200)])
def test_call_data_that_call_nothing_leave_signatures_open(honest: Run, data: bytes) -> None:
    for log in logs_of(honest):
        report = with_transaction(honest, log.transaction_hash, input=data)
        if named(log) == "LedgerDeployed":
            require_failure(report, DEPLOYMENT)
        elif named(log) in SIGNED:
            require_open(report)
        else:
            assert report.outcome is AuditOutcome.PASSED, readable(report)


def test_transactions_not_sent_to_the_ledger_leave_signatures_open(honest: Run) -> None:
    """An account with code of its own can call the ledger from a transaction to itself."""

    def relayed(transaction: Transaction) -> Transaction:
        if transaction.to is None:
            return transaction
        return replace(transaction, to=transaction.sender, input=b"execute()")

    report = tampered(honest, transaction_of=relayed)
    require_open(report)
    assert report.rounds == 5
    assert {step.number for step in report.steps if step.outcome is not StepOutcome.PASSED} == {3}
    bans = [found for found in report.findings if found.kind == BAN]
    assert [found.proven for found in bans] == [False, False]


def test_a_transaction_that_the_chain_has_dropped_leaves_signatures_open(honest: Run) -> None:
    require_open(tampered(honest, transaction_of=raising(ChainError("no block holds it"))))
    log = all_named(honest, "RoundDecided")[0]
    require_open(with_log(honest, log, replace(log, transaction_hash=bytes(32))))


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("wrong", [{"hash": bytes(32)}, {"block_number": 2**32}])
def test_another_transaction_than_log_names_is_found(honest: Run, wrong: dict[str, Any]) -> None:
    for log in logs_of(honest):
        report = with_transaction(honest, log.transaction_hash, **wrong)
        require_failure(report, CERTIFICATES)


@pytest.mark.parametrize(
    ("name", "wrong", "place"),
    [
        ("number", 0, -2),
        ("hash", bytes(32), -2),
        ("parent_hash", bytes(32), -2),
        ("parent_hash", bytes(32), -1),
    ],
)
def test_another_block_is_found(honest: Run, name: str, wrong: Any, place: int) -> None:
    number = logs_of(honest)[place].block_number
    changes = {name: wrong}

    def change(block: Block) -> Block:
        return replace(block, **changes) if block.number == number else block

    require_failure(tampered(honest, block_of=change), HEAD)


@pytest.mark.parametrize("function", ["deployment", "state"])
def test_a_wrong_answer_of_the_contract_contradicts_its_history(honest: Run, function: str) -> None:
    types = answer_types(function)
    values = decode(types, honest.chain.call(honest.ledger.address, abi.call_data(function)))
    for place in range(len(types)):
        for data in wrong_values(types, values, place, WAYS):
            report = tampered(honest, **_instead(function, data))
            if is_possible(function, data):
                require_failure(report, DEPLOYMENT | HEAD)
            else:  # no contract answers so: it says something of the node
                assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
    for data in (b"", bytes(31), bytes(640), b"\xff" * 640):
        report = tampered(honest, **_instead(function, data))
        assert report.outcome is not AuditOutcome.PASSED, readable(report)


def is_possible(function: str, data: bytes) -> bool:
    values = decode(answer_types(function), data)
    return (
        values[0] in set(LedgerStage) if function == "state" else values[6] in set(AcceptanceForm)
    )


def _instead(function: str, data: bytes) -> dict[str, Callable[..., bytes]]:
    """Lie in a view's answer, and in the code, which ends with what `deployment` returns."""
    lies: dict[str, Callable[..., bytes]] = {
        "answer_of": lambda name, true: data if name == function else true
    }
    if function == "deployment":
        lies["code_of"] = lambda true: true[: len(abi.artifact().runtime) + 64] + data
    return lies


def test_other_code_or_another_chain_is_found(honest: Run) -> None:
    code = honest.chain.code(honest.ledger.address)
    places = (0, 1000, len(code) - 448, len(code) - 1)
    changed = [code[:at] + bytes([code[at] ^ 1]) + code[at + 1 :] for at in places]
    for one in (*changed, b"", code + b"\0"):
        require_failure(tampered(honest, code_of=lambda _, one=one: one), DEPLOYMENT)
    require_failure(tampered(honest, id_of=lambda true: true + 1), CERTIFICATES)


def test_a_node_that_goes_away_is_no_contradiction(honest: Run) -> None:
    """What was checked until then comes out, and whether a kept head is there is left open."""
    kept = Digest(bytes(32))
    reports = [
        audit(forged(remembered(honest.ledger), most_calls=calls), honest.blobs, head=kept)
        for calls in (*range(9), 17, 23, 35)
    ]
    for report in reports:
        assert report.outcome is AuditOutcome.INCOMPLETE, readable(report)
        assert all(step.missing for step in report.steps)
        assert "the rest of the chain cannot be read: the node went away" in str(readable(report))
    assert [report.rounds for report in reports][-3:] == [1, 2, 4]
    needs = {missing.need for missing in reports[-1].step(AuditStep.HEAD).missing}
    assert needs == {CHAIN_UNAVAILABLE, KEPT_HEAD_UNCHECKED, HEAD_BLOCK_UNAVAILABLE}


@pytest.mark.parametrize(("event", "name"), EVENT_FIELDS)
def test_an_event_forged_together_with_its_transaction_is_found_too(
    honest: Run, event: str, name: str
) -> None:
    """The log is then all that is left to go on with, and it may hold anything."""
    types, place = field_types(event), field_names(event).index(name)
    log = all_named(honest, event)[0]
    for data in wrong_values(types, decode(types, log.data), place, WAYS):
        require_failure(_forged_together(honest, log, data=data), ANY)


def test_logs_of_largest_numbers_and_of_zeros_are_found(honest: Run) -> None:
    for log in one_of_each(honest):
        types = field_types(named(log))
        wildest = encode(types, list(map(_largest, types, decode(types, log.data))))
        for data in (wildest, b"", bytes(32), b"\xff" * len(log.data)):
            require_failure(_forged_together(honest, log, data=data), ANY)
        far = tuple(b"\xff" * 24 + topic[24:] if n else topic for n, topic in enumerate(log.topics))
        if far != log.topics:
            require_failure(_forged_together(honest, log, topics=far), ANY)


def _forged_together(run: Run, true: Log, **wrong: Any) -> AuditReport:
    change = only(true.transaction_hash, input=b"")
    return with_log(run, true, replace(true, **wrong), transaction_of=change)


def _largest(kind: str, value: Any) -> Any:
    """Return the largest value of an ABI type, in the shape of a given one."""
    if kind.endswith("]"):
        return [_largest(kind[: kind.rindex("[")], part) for part in value]
    if kind.startswith("("):
        return tuple(map(_largest, kind[1:-1].split(","), value))
    return 2 ** int(kind.removeprefix("uint")) - 1 if kind.startswith("uint") else b"\xff" * 32


def test_a_whitewashed_record_does_not_belong_to_the_result(honest: Run) -> None:
    """The record is bound by the result: by the signatures over it, and by the head."""
    log = all_named(honest, "RoundDecided")[0]
    event = decision_in(log)
    record = decode_record(honest.blobs.get(event.record))
    assert record.refused, "there is a liar to whitewash"
    data = encode_record(replace(record, refused=()))
    other = sha256(data)
    topics, wrong = encode_log(replace(event, record=other))
    whitewashed = replace(log, topics=topics, data=wrong)
    call = honest.ledger.call_of(log.transaction_hash)
    assert isinstance(call, DecideCall)
    forged_call = encode_call(replace(call, decision=replace(call.decision, record=other)))
    store = ChangedBlobs(honest.blobs, {other: data})
    for change, steps in (({"input": forged_call}, CERTIFICATES), ({"to": "0x" + "11" * 20}, HEAD)):
        told = forged(
            remembered(honest.ledger),
            logs_of=lambda logs: [whitewashed if one == log else one for one in logs],
            transaction_of=only(log.transaction_hash, **change),
        )
        require_failure(audit(told, store), steps)


def test_seed_that_does_not_follow_from_the_reveal_is_found(honest: Run) -> None:
    """Not in the log alone, and not if the signatures cannot be checked either."""
    log = all_named(honest, "RoundDecided")[0]
    for change in ("next_seed", "reveal"):
        wrong: dict[str, Any] = {change: keccak256(b"another")}
        topics, data = encode_log(replace(decision_in(log), **wrong))
        require_failure(_forged_together(honest, log, topics=topics, data=data), HEAD)


def test_a_ban_of_an_unknown_client_is_found(honest: Run) -> None:
    log = all_named(honest, "ClientBanned")[0]
    topics = (*log.topics[:2], bytes([0]) * 30 + b"\xff\xff")
    require_failure(_forged_together(honest, log, topics=topics), COMPLETENESS)


def test_markup_in_a_node_s_answer_stays_text(honest: Run) -> None:
    hostile = ChainDamagedError("[/] [bold]all is well[/bold]\x1b[2J\n{true}" + "x" * 1000)
    report = tampered(honest, block_of=raising(hostile))
    require_failure(report, HEAD)
    text = " ".join(readable(report))
    assert "(/) (bold)all is well(/bold)?(2J?{true}" in text
    assert len(max(readable(report), key=len)) < 500


def test_a_chain_that_answers_with_errors_is_named(honest: Run) -> None:
    broken = raising(ChainDamagedError("block 3: is gone"))
    for change in ("logs_of", "transaction_of", "block_of", "answer_of", "code_of"):
        report = tampered(honest, **{change: broken})
        require_failure(report, ANY)
        assert "block 3: is gone" in " ".join(readable(report))


def test_a_contract_of_impossible_sizes_fails_even_without_its_configuration(honest: Run) -> None:
    types = answer_types("deployment")
    values = decode(types, honest.chain.call(honest.ledger.address, abi.call_data("deployment")))
    clients = [
        entry["name"] for entry in abi.artifact().abi["deployment"]["outputs"][0]["components"]
    ].index("clients")
    data = encode(types, [*values[:clients], 2**255, *values[clients + 1 :]])
    ledger = forged(remembered(honest.ledger), **_instead("deployment", data))
    report = audit(ledger, MemoryBlobs())
    assert failing(report) == {1}
    assert report.rounds == 0


def test_a_report_names_only_so_much_and_counts_the_rest(honest: Run) -> None:
    log = AuditLog()

    def missing(number: int) -> MissingInput:
        return MissingInput(BLOB_MISSING, number, (), BlobKind.PAYLOAD, "0x00")

    log.take(CheckResult(AuditStep.BLOBS, missing(0), 1))
    for number in range(MAX_FINDINGS + 1):
        log.take(CheckResult(AuditStep.BLOBS, missing(number), 1))
        clients = tuple(map(ClientId, range(30)))
        dropout = Finding(DROPOUT, number, clients, (), proven=True)
        log.take(CheckResult(AuditStep.COMPLETENESS, dropout, 1))
    step = log.steps[AuditStep.BLOBS]
    assert (len(step.missing), step.missing_count) == (MAX_NAMED, MAX_FINDINGS + 1)
    assert len(log.findings) == MAX_FINDINGS
    assert log.finding_counts[DROPOUT.code] == MAX_FINDINGS + 1
    report = audit(honest.ledger, honest.blobs)
    report = replace(
        report,
        steps=tuple(log.steps.values()),
        findings=tuple(log.findings),
        finding_counts=dict(log.finding_counts),
    )
    text = readable(report)
    assert "     and 9996 more inputs that are missing" in text
    assert any("and 10 more: dropout" in line for line in text)
    assert any(line.startswith("  ... and 9951 more; in all 10001 dropout") for line in text)
