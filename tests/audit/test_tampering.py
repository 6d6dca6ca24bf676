"""Tampering never passes: whatever a chain or a blob store changes, a step fails and says so.

Each table lists what can be changed and the steps of which one must fail. A change that an audit
lets pass is a survivor, and there are none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from eth_abi.abi import decode, encode

from ledger.audit.audit import audit, readable
from ledger.audit.report import MOST_FINDINGS, MOST_NAMED, Finding, Notebook
from ledger.blobs.store import MemoryBlobs
from ledger.chain import abi
from ledger.chain.ports import ChainDamagedError, ChainUnreachableError
from tests.audit.forged_chain import (
    answer_types,
    field_names,
    field_types,
    forged,
    input_types,
    variants,
    wrong_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.audit.report import AuditReport
    from ledger.chain.ports import Block, Log, Transaction
    from tests.audit.play import Game

DEPLOYMENT, HEAD, CERTIFICATES, SAMPLING = {1}, {2}, {3}, {4}
RANKING, COMPLETENESS = {8}, {10}
ANY = set(range(1, 11))

EVENT_FIELDS: dict[tuple[str, str], set[int]] = {
    ("ClientsRegistered", "first"): DEPLOYMENT,
    ("ClientsRegistered", "words"): DEPLOYMENT,
    ("LedgerOpened", "config"): DEPLOYMENT,
    ("LedgerOpened", "seed"): HEAD,
    ("LedgerOpened", "committee"): DEPLOYMENT,
    ("LedgerOpened", "model"): DEPLOYMENT,
    ("UpdatesCommitted", "commitments"): CERTIFICATES,
    ("RoundDecided", "ranking"): CERTIFICATES,
    ("RoundDecided", "accepted"): RANKING | CERTIFICATES,
    ("RoundDecided", "next_committee"): RANKING | CERTIFICATES,
    ("RoundDecided", "model"): CERTIFICATES,
    ("RoundDecided", "updates_root"): CERTIFICATES,
    ("RoundDecided", "scores_root"): CERTIFICATES,
    ("RoundDecided", "threshold_bits"): CERTIFICATES,
    ("RoundDecided", "record"): CERTIFICATES,
    ("RoundDecided", "views"): CERTIFICATES,
    ("RoundDecided", "primaries"): CERTIFICATES,
    ("RoundDecided", "signers"): CERTIFICATES,
    ("RoundDecided", "next_seed"): HEAD,
    ("RoundDecided", "head"): HEAD,
    ("RoundAbandoned", "next_committee"): SAMPLING,
    ("RoundAbandoned", "next_seed"): HEAD,
    ("RoundAbandoned", "head"): HEAD,
    ("ClientBanned", "head"): HEAD,
}
CALL_ARGUMENTS: dict[tuple[str, int], set[int]] = {
    ("register_clients", 0): DEPLOYMENT,
    ("register_clients", 1): DEPLOYMENT,
    ("commit_updates", 0): COMPLETENESS,
    ("commit_updates", 1): CERTIFICATES | COMPLETENESS,
    ("commit_updates", 2): CERTIFICATES,
    ("decide", 0): COMPLETENESS,
    ("decide", 1): SAMPLING,
    ("decide", 2): CERTIFICATES | RANKING | SAMPLING | COMPLETENESS,
    ("decide", 3): CERTIFICATES | RANKING,
    ("decide", 4): CERTIFICATES | RANKING,
    ("decide", 5): CERTIFICATES,
    ("decide", 6): CERTIFICATES | RANKING,
    ("decide", 7): CERTIFICATES,
    ("abandon_round", 0): COMPLETENESS,
    ("report_equivocation", 0): CERTIFICATES,
    ("report_equivocation", 1): CERTIFICATES,
    ("report_equivocation", 2): CERTIFICATES,
    ("report_equivocation", 3): CERTIFICATES,
    ("report_equivocation", 4): CERTIFICATES,
    ("report_equivocation", 5): CERTIFICATES,
    ("report_equivocation", 6): CERTIFICATES,
}


def failing(report: AuditReport) -> set[int]:
    return {step.number for step in report.steps if step.outcome == "failed"}


def require_failure(report: AuditReport, steps: set[int]) -> None:
    """The audit fails, and in one of these steps; each failure says what contradicts what."""
    assert report.outcome == "failed", readable(report)
    assert failing(report) & steps, readable(report)
    for step in report.steps:
        if step.outcome == "failed":
            assert step.contradiction is not None
            assert step.contradiction.recorded
            assert step.contradiction.true
    assert readable(report)[-1].startswith("FAILED")


def logs_of(game: Game) -> list[Log]:
    head = game.chain.head().number
    return game.chain.logs(game.ledger.address, [], 0, head)


def named(log: Log) -> str:
    events = {event for event, _ in EVENT_FIELDS}
    return next(event for event in events if abi.topic(event) == log.topics[0])


def with_log(game: Game, wrong: Log) -> AuditReport:
    """Audit with one log in the place of the true one."""
    place = (wrong.block_number, wrong.log_index)

    def change(logs: list[Log]) -> list[Log]:
        return [wrong if (log.block_number, log.log_index) == place else log for log in logs]

    return audit(forged(game.ledger, logs_of=change), game.blobs)


def with_logs(game: Game, change: Callable[[list[Log]], list[Log]]) -> AuditReport:
    return audit(forged(game.ledger, logs_of=change), game.blobs)


def with_input(game: Game, transaction_hash: bytes, data: bytes) -> AuditReport:
    def change(transaction: Transaction) -> Transaction:
        mine = transaction.hash == transaction_hash
        return replace(transaction, input=data) if mine else transaction

    return audit(forged(game.ledger, transaction_of=change), game.blobs)


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


def test_a_chain_that_passes_everything_on_unchanged_passes(honest: Game) -> None:
    assert audit(forged(honest.ledger), honest.blobs).outcome == "passed"


@pytest.mark.parametrize(("event", "name"), EVENT_FIELDS)
def test_a_wrong_field_of_an_event_contradicts_its_transaction(
    honest: Game, event: str, name: str
) -> None:
    types, place = field_types(event), field_names(event).index(name)
    logs = [log for log in logs_of(honest) if named(log) == event]
    assert logs
    for log in (logs[0], logs[-1])[: len(logs)]:
        wrong = list(wrong_values(types, decode(types, log.data), place))
        assert wrong
        for data in wrong:
            require_failure(with_log(honest, replace(log, data=data)), EVENT_FIELDS[event, name])


def test_a_wrong_topic_of_an_event_contradicts_its_transaction(honest: Game) -> None:
    for log in logs_of(honest):
        for place, topic in enumerate(log.topics):
            wrong = (topic[:-1] + bytes([topic[-1] ^ 1]),)
            topics = (*log.topics[:place], *wrong, *log.topics[place + 1 :])
            require_failure(with_log(honest, replace(log, topics=topics)), ANY)
        require_failure(with_log(honest, replace(log, topics=log.topics[:-1])), ANY)


def test_a_log_with_other_bytes_of_the_same_meaning_is_not_the_contract_s(honest: Game) -> None:
    log = logs_of(honest)[-1]
    require_failure(with_log(honest, replace(log, data=log.data + bytes(32))), CERTIFICATES)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("address", HEAD),
        ("block_number", ANY),
        ("block_hash", HEAD),
        ("transaction_hash", CERTIFICATES),
    ],
)
def test_a_log_that_claims_another_place_is_found(honest: Game, name: str, steps: set[int]) -> None:
    for log in logs_of(honest):
        value: Any = getattr(log, name)
        wrong: Any = {
            "address": "0x" + "11" * 20,
            "block_number": log.block_number + 1,
            "block_hash": bytes(32),
            "transaction_hash": bytes(32),
        }[name]
        assert wrong != value
        changes: dict[str, Any] = {name: wrong}
        changed = replace(log, **changes)
        place = (log.block_number, log.log_index)
        report = with_logs(
            honest,
            lambda logs, changed=changed, place=place: [  # type: ignore[misc]
                changed if (one.block_number, one.log_index) == place else one for one in logs
            ],
        )
        require_failure(report, steps)


def test_a_hidden_a_repeated_and_a_swapped_log_are_found(honest: Game) -> None:
    whole = logs_of(honest)
    for place in range(len(whole)):
        require_failure(with_logs(honest, lambda logs, at=place: logs[:at] + logs[at + 1 :]), ANY)  # type: ignore[misc]
        require_failure(with_logs(honest, lambda logs, at=place: logs[: at + 1] + logs[at:]), ANY)  # type: ignore[misc]
    for place in range(len(whole) - 1):
        report = with_logs(
            honest,
            lambda logs, at=place: [*logs[:at], logs[at + 1], logs[at], *logs[at + 2 :]],  # type: ignore[misc]
        )
        require_failure(report, HEAD)


@pytest.mark.parametrize("missing", [1, 2, 3, 4, 5])
def test_a_missing_round_and_a_cut_off_end_are_found(honest: Game, missing: int) -> None:
    topics = (abi.topic("RoundDecided"), abi.topic("RoundAbandoned"), abi.topic("UpdatesCommitted"))

    def of_round(log: Log) -> int:
        return int.from_bytes(log.topics[1]) if log.topics[0] in topics else 0

    gone = with_logs(honest, lambda logs: [log for log in logs if of_round(log) != missing])
    require_failure(gone, HEAD | COMPLETENESS)
    cut = with_logs(honest, lambda logs: [log for log in logs if of_round(log) < missing])
    require_failure(cut, HEAD)
    assert cut.rounds < 5


def test_two_swapped_rounds_are_found(honest: Game) -> None:
    first, second = [log for log in logs_of(honest) if named(log) == "RoundDecided"][:2]
    swapped = {
        first.block_number: replace(first, topics=second.topics, data=second.data),
        second.block_number: replace(second, topics=first.topics, data=first.data),
    }
    report = with_logs(honest, lambda logs: [swapped.get(log.block_number, log) for log in logs])
    require_failure(report, CERTIFICATES)


@pytest.mark.parametrize(("function", "place"), CALL_ARGUMENTS)
def test_a_wrong_argument_in_call_data_is_refused_or_contradicts_the_event(
    honest: Game, function: str, place: int
) -> None:
    types = input_types(function)
    transactions: dict[bytes, Transaction] = {}
    for log in logs_of(honest):
        transaction = honest.chain.transaction(log.transaction_hash)
        if transaction.input[:4] == abi.selector(function):
            transactions[transaction.hash] = transaction
    assert transactions
    for transaction in [*transactions.values()][:: max(1, len(transactions) - 1)]:
        values = decode(types, transaction.input[4:])
        wrong = list(wrong_values(types, values, place))
        assert wrong
        for data in wrong:
            report = with_input(honest, transaction.hash, transaction.input[:4] + data)
            require_failure(report, CALL_ARGUMENTS[function, place])


def test_every_signature_of_a_decision_counts(honest: Game) -> None:
    log = [log for log in logs_of(honest) if named(log) == "RoundDecided"][1]
    data = honest.chain.transaction(log.transaction_hash).input
    types = input_types("decide")
    values = decode(types, data[4:])
    for certificate in (4, 6):
        for field, value in enumerate(values[certificate]):
            for wrong in variants(value):
                arguments = [*values]
                changed = (*values[certificate][:field], wrong, *values[certificate][field + 1 :])
                arguments[certificate] = changed
                wrong_data = data[:4] + encode(types, arguments)
                report = with_input(honest, log.transaction_hash, wrong_data)
                require_failure(report, CERTIFICATES | RANKING)
        for place, reply in enumerate(values[certificate + 1]):
            for part in (0, 1):
                other = bytearray(reply[part])
                other[31] ^= 1
                replies = list(values[certificate + 1])
                replies[place] = (reply[0], bytes(other)) if part else (bytes(other), reply[1])
                arguments = [*values]
                arguments[certificate + 1] = replies
                wrong_data = data[:4] + encode(types, arguments)
                report = with_input(honest, log.transaction_hash, wrong_data)
                require_failure(report, CERTIFICATES)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", bytes(200)])
def test_call_data_that_call_nothing_are_found(honest: Game, data: bytes) -> None:
    for log in logs_of(honest):
        require_failure(with_input(honest, log.transaction_hash, data), CERTIFICATES)


@pytest.mark.parametrize(
    ("name", "wrong"), [("hash", bytes(32)), ("to", "0x" + "22" * 20), ("block_number", 1)]
)
def test_another_transaction_than_the_log_names_is_found(
    honest: Game, name: str, wrong: object
) -> None:
    for log in logs_of(honest):

        def change(transaction: Transaction, log: Log = log) -> Transaction:
            mine = transaction.hash == log.transaction_hash
            return replace(transaction, **{name: wrong}) if mine else transaction  # type: ignore[arg-type]

        report = audit(forged(honest.ledger, transaction_of=change), honest.blobs)
        require_failure(report, CERTIFICATES)


@pytest.mark.parametrize("name", ["number", "hash", "parent_hash"])
def test_another_block_than_the_log_names_is_found(honest: Game, name: str) -> None:
    def change(block: Block) -> Block:
        wrong: dict[str, Any] = {"number": 0, "hash": bytes(32), "parent_hash": bytes(32)}
        mine = block.number == logs_of(honest)[-1].block_number
        return replace(block, **{name: wrong[name]}) if mine else block

    report = audit(forged(honest.ledger, block_of=change), honest.blobs)
    require_failure(report, HEAD)


@pytest.mark.parametrize("function", ["deployment", "state"])
def test_a_wrong_answer_of_the_contract_contradicts_its_history(
    honest: Game, function: str
) -> None:
    types = answer_types(function)
    right = honest.chain.call(honest.ledger.address, abi.call_data(function))
    values = decode(types, right)
    for place in range(len(types)):
        for data in wrong_values(types, values, place):
            report = audit(forged(honest.ledger, answer_of=_instead(function, data)), honest.blobs)
            require_failure(report, DEPLOYMENT | HEAD)
    for data in (b"", bytes(31), bytes(640), b"\xff" * 640):
        report = audit(forged(honest.ledger, answer_of=_instead(function, data)), honest.blobs)
        require_failure(report, DEPLOYMENT | HEAD)


def _instead(function: str, data: bytes) -> Callable[[str, bytes], bytes]:
    return lambda name, true: data if name == function else true


def test_other_code_or_another_chain_is_found(honest: Game) -> None:
    code = honest.chain.code(honest.ledger.address)
    for place in (0, 1000, len(code) - 384, len(code) - 1):
        wrong = bytearray(code)
        wrong[place] ^= 1
        report = audit(forged(honest.ledger, code_of=lambda _, w=bytes(wrong): w), honest.blobs)
        require_failure(report, DEPLOYMENT)
    for other in (b"", code + b"\0"):
        report = audit(forged(honest.ledger, code_of=lambda _, o=other: o), honest.blobs)
        require_failure(report, DEPLOYMENT)
    report = audit(forged(honest.ledger, id_of=lambda true: true + 1), honest.blobs)
    require_failure(report, CERTIFICATES)


def test_a_node_that_goes_away_is_no_contradiction(honest: Game) -> None:
    for calls in range(12):
        with pytest.raises(ChainUnreachableError):
            audit(forged(honest.ledger, most_calls=calls), honest.blobs)


@pytest.mark.parametrize(("event", "name"), EVENT_FIELDS)
def test_an_event_forged_together_with_its_transaction_is_found_too(
    honest: Game, event: str, name: str
) -> None:
    """The log is then all that is left to go on with, and it may hold anything."""
    types, place = field_types(event), field_names(event).index(name)
    log = next(log for log in logs_of(honest) if named(log) == event)
    for data in wrong_values(types, decode(types, log.data), place):
        report = _forged_together(honest, replace(log, data=data))
        require_failure(report, ANY)


def test_a_log_of_the_largest_numbers_and_a_log_of_nothing_are_found(honest: Game) -> None:
    for log in logs_of(honest):
        types = field_types(named(log))
        wildest = encode(types, list(map(_largest, types, decode(types, log.data))))
        for data in (wildest, b"", bytes(32), b"\xff" * len(log.data)):
            require_failure(_forged_together(honest, replace(log, data=data)), ANY)
        far = tuple(b"\xff" * 24 + topic[24:] if n else topic for n, topic in enumerate(log.topics))
        require_failure(_forged_together(honest, replace(log, topics=far)), ANY)


def test_a_chain_whose_transactions_are_all_unreadable_fails_but_is_read_to_its_end(
    honest: Game,
) -> None:
    report = audit(
        forged(honest.ledger, transaction_of=lambda true: replace(true, input=b"")), honest.blobs
    )
    assert failing(report) == {1, 3}, "the head follows from the events alone"
    assert report.rounds == 5


def _forged_together(game: Game, wrong: Log) -> AuditReport:
    place = (wrong.block_number, wrong.log_index)

    def logs_of_chain(logs: list[Log]) -> list[Log]:
        return [wrong if (log.block_number, log.log_index) == place else log for log in logs]

    def transaction_of(true: Transaction) -> Transaction:
        mine = true.hash == wrong.transaction_hash
        return replace(true, input=b"") if mine else true

    ledger = forged(game.ledger, logs_of=logs_of_chain, transaction_of=transaction_of)
    return audit(ledger, game.blobs)


def _largest(kind: str, value: Any) -> Any:
    """Return the largest value of an ABI type, in the shape of a given one."""
    if kind.endswith("]"):
        return [_largest(kind[: kind.rindex("[")], part) for part in value]
    if kind.startswith("("):
        return tuple(map(_largest, kind[1:-1].split(","), value))
    return 2 ** int(kind.removeprefix("uint")) - 1 if kind.startswith("uint") else b"\xff" * 32


def test_a_chain_that_answers_with_errors_is_named(honest: Game) -> None:
    def broken(*_: object) -> Any:
        raise ChainDamagedError("block 3: is gone")

    for change in ("logs_of", "transaction_of", "block_of", "answer_of", "code_of"):
        report = audit(forged(honest.ledger, **{change: broken}), honest.blobs)
        require_failure(report, ANY)
        assert "block 3: is gone" in " ".join(readable(report))


def test_a_contract_of_impossible_sizes_fails_even_without_its_configuration(
    honest: Game,
) -> None:
    types = answer_types("deployment")
    right = honest.chain.call(honest.ledger.address, abi.call_data("deployment"))
    values = decode(types, right)
    clients = [entry["name"] for entry in abi.output_fields("deployment")].index("clients")
    data = encode(types, [*values[:clients], 2**255, *values[clients + 1 :]])
    ledger = forged(honest.ledger, answer_of=_instead("deployment", data))
    report = audit(ledger, MemoryBlobs())
    assert failing(report) == {1}
    assert report.rounds == 0


def test_a_report_names_only_so_much_and_counts_the_rest(honest: Game) -> None:
    notes = Notebook()
    notes.lack(5, "blob 0 is missing")
    for number in range(MOST_FINDINGS + 1):
        notes.lack(5, f"blob {number} is missing")
        notes.find(Finding("dropout", number, tuple(range(30)), "why", (), proven=True))
    step = notes.steps()[4]
    assert (len(step.missing), step.missing_count) == (MOST_NAMED, MOST_FINDINGS + 1)
    assert len(notes.findings) == MOST_FINDINGS
    assert notes.finding_counts["dropout"] == MOST_FINDINGS + 1
    report = audit(honest.ledger, honest.blobs)
    report = replace(
        report,
        steps=notes.steps(),
        findings=tuple(notes.findings),
        finding_counts=dict(notes.finding_counts),
    )
    text = readable(report)
    assert "     and 9996 more things that could not be checked" in text
    assert any("and 10 more: dropout" in line for line in text)
    assert any(line.startswith("  ... and 9951 more; in all 10001 dropout") for line in text)
