"""Trust policies (c2sp.org/tlog-policy): what checkpoints and proofs are worth under them."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import Digest
from ledger.transparency import notes, tree

MAX_POLICY_BYTES = 100_000
MAX_LINES_OF_A_KIND = 256
NONE = "none"
_FORMS = {
    "log": "log <vkey> [<url>]",
    "witness": "witness <name> <vkey> [<url>]",
    "group": "group <name> all|any|<k> <name>...",
    "quorum": "quorum <name>",
}


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """A log or a witness."""

    name: str  # of a witness, in this policy alone; of a log, its origin
    key: notes.VerifierKey
    url: str | None = None


@dataclass(frozen=True, slots=True)
class WitnessPolicy:
    """Known logs and witnesses, and how many witnesses are enough."""

    logs: tuple[PolicyKey, ...]
    witnesses: Mapping[str, PolicyKey]
    groups: Mapping[str, tuple[int, tuple[str, ...]]]  # threshold and members, defined before
    quorum: str  # a witness or group; `none` if no cosignature is needed

    def is_met(self, cosigned: Collection[str]) -> bool:
        return self.quorum == NONE or self._is_member_met(self.quorum, frozenset(cosigned))

    def _is_member_met(self, name: str, cosigned: frozenset[str]) -> bool:
        if name not in self.groups:
            return name in cosigned
        threshold, members = self.groups[name]
        return sum(self._is_member_met(member, cosigned) for member in members) >= threshold


def parse_policy(data: bytes) -> WitnessPolicy:
    """Return the policy in a file."""
    if len(data) > MAX_POLICY_BYTES:
        raise ConfigurationError(f"the policy is longer than {MAX_POLICY_BYTES} bytes")
    # Names are opaque bytes; only those in a key have to be UTF-8.
    text = data.decode("utf-8", "surrogateescape")
    parser = _Parser()
    for number, line in enumerate(text.split("\n"), 1):
        if any((sign < " " and sign != "\t") or sign == "\x7f" for sign in line):
            raise ConfigurationError(f"policy line {number}: has a control character")
        words = [word for word in re.split("[ \t]+", line) if word]
        if words and not words[0].startswith("#"):
            try:
                parser.take(words)
            except (notes.NoteError, ConfigurationError) as error:
                raise ConfigurationError(f"policy line {number}: {error}") from None
    return parser.policy()


class _Parser:
    def __init__(self) -> None:
        self._logs: list[PolicyKey] = []
        self._witnesses: dict[str, PolicyKey] = {}
        self._groups: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._quorum: str | None = None
        self._grouped: set[str] = set()

    def take(self, words: Sequence[str]) -> None:
        match words:
            case ["log", vkey, *url] if len(url) <= 1:
                key = notes.parse_vkey(vkey, notes.KeyUse.NOTE)
                self._logs.append(_fresh(PolicyKey(key.name, key, *url), self._logs))
            case ["witness", name, vkey, *url] if len(url) <= 1:
                self._require_new(name)
                new = PolicyKey(name, notes.parse_vkey(vkey, notes.KeyUse.COSIGNATURE), *url)
                self._witnesses[name] = _fresh(new, self._witnesses.values())
            case ["group", name, count, *members] if members:
                self._take_group(name, count, members)
            case ["quorum", name]:
                if self._quorum is not None:
                    raise ConfigurationError("there is already a quorum line")
                if name != NONE:
                    self._require_known(name)
                self._quorum = name
            case [kind, *_] if kind in _FORMS:
                raise ConfigurationError(_FORMS[kind])
            case _:
                kinds = ", ".join(_FORMS)
                raise ConfigurationError(
                    f"begins with {notes.quoted(words[0])}; must be one of {kinds}"
                )

    def policy(self) -> WitnessPolicy:
        if self._quorum is None:
            raise ConfigurationError("the policy has no quorum line")
        return WitnessPolicy(tuple(self._logs), self._witnesses, self._groups, self._quorum)

    def _take_group(self, name: str, count: str, members: Sequence[str]) -> None:
        self._require_new(name)
        for member in members:
            self._require_known(member)
            if member in self._grouped:
                raise ConfigurationError(f"{notes.quoted(member)} is already a member of a group")
            self._grouped.add(member)
        threshold = {"all": len(members), "any": 1}.get(count, 0)
        if re.fullmatch("[1-9][0-9]{0,3}", count):
            threshold = int(count)
        if not 1 <= threshold <= len(members):
            raise ConfigurationError(
                f"the threshold {notes.quoted(count)} must be all, any, or 1 to {len(members)}"
            )
        self._groups[name] = threshold, tuple(members)
        _require_few(self._groups, "groups")

    def _require_new(self, name: str) -> None:
        if name == NONE or name in self._witnesses or name in self._groups:
            raise ConfigurationError(f"the name {notes.quoted(name)} is taken")

    def _require_known(self, name: str) -> None:
        if name not in self._witnesses and name not in self._groups:
            raise ConfigurationError(f"no earlier line defines {notes.quoted(name)}")


def _fresh(new: PolicyKey, others: Collection[PolicyKey]) -> PolicyKey:
    if any(other.key.public_key == new.key.public_key for other in others):
        raise ConfigurationError(f"the public key of {notes.quoted(new.name)} is repeated")
    _require_few(others, "logs or witnesses")
    return new


def _require_few(lines: Collection[object], kind: str) -> None:
    if len(lines) >= MAX_LINES_OF_A_KIND:
        raise ConfigurationError(f"a policy must have fewer than {MAX_LINES_OF_A_KIND} {kind}")


SKEW_SECONDS = 300  # how far a witness's clock may be ahead of the auditor's
DEFAULT_MAX_AGE_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class WitnessedCheckpoint:
    """A checkpoint that a quorum has cosigned recently enough."""

    checkpoint: notes.Checkpoint
    witnesses: tuple[str, ...]
    time: int  # seconds since 1970, as of which a quorum has seen nothing newer


@dataclass(frozen=True, slots=True)
class CheckpointEvidence:
    """All that logs and witnesses have signed of a run."""

    checkpoints: tuple[notes.Checkpoint, ...]  # each tree once, the largest first
    witnessed: WitnessedCheckpoint | None  # the largest one with a quorum; None if there is none
    failures: tuple[str, ...] = ()  # a sentence for each missing or uncounted answer
    withheld: tuple[str, ...] = ()

    def conflict(self) -> tuple[notes.Checkpoint, notes.Checkpoint] | None:
        trees: dict[tuple[str, int], notes.Checkpoint] = {}
        for checkpoint in self.checkpoints:
            other = trees.setdefault((checkpoint.origin, checkpoint.size), checkpoint)
            if other.root != checkpoint.root:
                return other, checkpoint
        return None


def weigh(
    policy: WitnessPolicy,
    signed: Iterable[notes.SignedCheckpoint],
    now: float,
    max_age_seconds: float,
) -> CheckpointEvidence:
    """Return what signed checkpoints are worth under a policy; `now` is in seconds since 1970."""
    by_text: dict[str, list[notes.SignedCheckpoint]] = {}
    for each in signed:
        by_text.setdefault(each.note.text, []).append(each)
    groups = sorted(by_text.values(), key=lambda group: -group[0].checkpoint.size)
    checkpoints = tuple(dict.fromkeys(group[0].checkpoint for group in groups))
    failures: list[str] = []
    for group in groups:
        counted, doubts = _counted(policy, group, now, max_age_seconds)
        failures += doubts
        if policy.is_met(counted):
            time = _quorum_time(policy, counted)
            witnessed = WitnessedCheckpoint(group[0].checkpoint, tuple(sorted(counted)), time)
            return CheckpointEvidence(checkpoints, witnessed, tuple(failures))
        failures.append(
            f"{len(counted)} of {len(policy.witnesses)} witnesses have cosigned the "
            f"{group[0].checkpoint.size} entries of {group[0].checkpoint.origin} recently, "
            "which is below the quorum"
        )
    return CheckpointEvidence(checkpoints, None, tuple(failures))


def _counted(
    policy: WitnessPolicy,
    group: Sequence[notes.SignedCheckpoint],
    now: float,
    max_age_seconds: float,
) -> tuple[dict[str, int], list[str]]:
    """Return the times of the cosignatures that count, by witness, and why others do not."""
    newest: dict[str, int] = {}
    doubts: list[str] = []
    for witness in policy.witnesses.values():
        cosignatures: list[notes.Cosignature] = []
        for signed in group:
            try:
                cosignatures += signed.cosignatures([witness.key])
            except notes.NoteError as error:
                doubts.append(str(error))
        current = [each.time for each in cosignatures if each.time <= now + SKEW_SECONDS]
        if len(current) < len(cosignatures):
            doubts.append(f"a cosignature of {witness.name} is from the future")
        if current and max(current) < now - max_age_seconds:
            age = (now - max(current)) / 3600
            doubts.append(f"the cosignature of {witness.name} is {age:.1f} hours old")
        elif current:
            newest[witness.name] = max(current)
    return newest, doubts


def _quorum_time(policy: WitnessPolicy, times: dict[str, int]) -> int:
    """Return the latest time with a quorum of cosignatures; 0 if no witness is needed."""
    names: list[str] = []
    for name in sorted(times, key=lambda name: -times[name]):
        names.append(name)
        if policy.is_met(names):
            return times[name]
    return 0


MAX_PROOF_BYTES = notes.MAX_NOTE_BYTES + 200_000
_FORM = re.compile(
    "c2sp\\.org/tlog-proof@v1\nextra ([^\n]+)\nindex (0|[1-9][0-9]{0,18})\n((?:[^\n]+\n)*)\n"
)


@dataclass(frozen=True, slots=True)
class LoggedHead:
    """A head, and the proof that a log has it, as a file (c2sp.org/tlog-proof)."""

    entry: bytes  # its bytes, in the `extra` line; the proof is of their hash
    index: int  # of the entry, from 0
    path: tuple[Digest, ...]
    note: bytes

    def encoded(self) -> bytes:
        extra = base64.b64encode(self.entry).decode()
        head = ["c2sp.org/tlog-proof@v1", f"extra {extra}", f"index {self.index}"]
        return "\n".join([*head, *notes.encode_hashes(self.path), "", ""]).encode() + self.note


def prove(entries: Sequence[bytes], index: int, note: bytes) -> LoggedHead:
    """Return the proof of an entry."""
    path = tree.inclusion_proof(index, [tree.leaf_hash(entry) for entry in entries])
    return LoggedHead(entries[index], index, path, note)


def parse_proof(data: bytes) -> LoggedHead:
    """Return the proof in a file; nothing of it is verified."""
    if len(data) > MAX_PROOF_BYTES:
        raise notes.NoteError(f"a proof may have at most {MAX_PROOF_BYTES} bytes")
    match = _FORM.match(data.decode("utf-8", "surrogateescape"))
    if match is None:
        raise notes.NoteError("the file is not a proof of a logged head (c2sp.org/tlog-proof@v1)")
    entry = notes.decode_base64(match[1])
    path = notes.decode_hashes(match[3].split("\n")[:-1])
    if not entry or path is None:
        raise notes.NoteError("the proof has a line that is not base64, or not of 32 bytes")
    return LoggedHead(entry, int(match[2]), path, data[len(match[0]) :])


def verified_head(
    proof: LoggedHead, policy: WitnessPolicy
) -> tuple[tree.HeadEntry, tuple[str, ...]]:
    """Return the head that a proof proves, and the witnesses for its log, quorum or not."""
    signed = notes.open_checkpoint(proof.note, [log.key for log in policy.logs])
    size, origin = signed.checkpoint.size, signed.checkpoint.origin
    tree.verify_inclusion(
        proof.index, size, tree.leaf_hash(proof.entry), proof.path, signed.checkpoint.root
    )
    entry = tree.parse_entry(proof.entry)
    suffix = tree.run_suffix(entry.domain.chain_id, entry.domain.contract)
    if not origin.endswith(suffix) or entry.round != proof.index + 1:
        raise notes.ProofError(
            f"the head of round {entry.round} is entry {proof.index} of {origin}; the entry "
            "is from another run, or at a wrong place"
        )
    keys = [witness.key for witness in policy.witnesses.values()]
    cosigned = {each.key for each in signed.cosignatures(keys)}
    return entry, tuple(n for n, witness in policy.witnesses.items() if witness.key in cosigned)
