"""Verification of proofs, from what the caller trusts."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cmfl.arguments import checked, digest_of_head
from cmfl.display import Table
from cmfl.opening import target_of
from cmfl.recorded import Proof, Run, read
from cmfl.where import Target, opened_ledger, target_on_node
from ledger.protocol.errors import ConfigurationError
from ledger.protocol.types import ClientId

if TYPE_CHECKING:
    from ledger.audit.proofs.proof_verification import ProofVerification
    from ledger.audit.proofs.trust import Trusted


class Verification:
    """The result of checking a proof.

    Attributes:
        result: of the ledger's verification, with all comparisons.
    """

    def __init__(self, result: ProofVerification) -> None:
        self.result = result

    @property
    def outcome(self) -> str:
        """Return "passed" (proven), "failed" (contradicted) or "incomplete"."""
        return str(self.result.outcome)

    @property
    def passed(self) -> bool:
        """True if the statement is proven."""
        return self.outcome == "passed"

    @property
    def sentence(self) -> str:
        """The proven statement, or the refusal, in a sentence."""
        return self.result.sentence

    @property
    def steps(self) -> Table:
        """The comparisons: name, what was expected, what was computed, whether they agree."""
        return Table(
            {
                "step": str(step.name),
                "expected": step.expected,
                "computed": step.computed,
                "ok": step.is_ok,
            }
            for step in self.result.steps
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences about what is not proven, however the comparisons end."""
        return tuple(caveat.sentence for caveat in self.result.caveats)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data, as `cmfl verify client --json` prints it."""
        return self.result.as_dict()

    def __repr__(self) -> str:
        return f"<cmfl.Verification {self.sentence}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence)}</p>{self.steps._repr_html_()}"


@checked
def verify(
    proof: Proof | str | Path,
    *,
    round: int | None = None,  # noqa: A002 - read as verify(..., round=3)
    client: int | None = None,
    head: str | None = None,
    run: Run | str | Path | None = None,
    rpc_url: str | None = None,
    address: str | None = None,
    chain_id: int | None = None,
) -> Verification:
    """Check a proof that somebody sent, from what you trust: a head, a run of yours, or a contract.

    Args:
        proof: what `Round.prove` made, or the path of its file.
        round: the round that you asked about; None for the proof's own.
        client: the client that you asked about; None for the proof's own.
        head: a head that you have kept, 0x-hex.
        run: your own run or home, whose chain is trusted.
        rpc_url: a node that you trust, with `address`.
        address: of the contract on the node's chain, 0x-hex.
        chain_id: that the node must have; None accepts the node's own.

    Returns:
        The verification; without anything that is trusted it is "incomplete".

    Raises:
        ConfigurationError: more than one thing is to be trusted, or an argument is wrong.
        EncodingError: the file is no proof.
        ChainError: the chain cannot be read.
    """
    from ledger.audit.proofs.proof_verification import verify_proof

    sent = proof if isinstance(proof, Proof) else read(Path(proof))
    number = sent.round if round is None else round
    who = ClientId(sent.client if client is None else client)
    if sum(each is not None for each in (head, run, rpc_url)) > 1:
        raise ConfigurationError("trust one of head=, run= and rpc_url=")
    if (rpc_url is None) != (address is None):
        raise ConfigurationError("rpc_url= and address= go together: node and contract")
    trusted: Trusted | None = None
    if head is not None:
        trusted = trusted_head(head)
    elif run is not None:
        trusted = _contract_of(
            run.target if isinstance(run, Run) else target_of(Path(run), None), number
        )
    elif rpc_url is not None and address is not None:
        trusted = _contract_of(target_on_node(rpc_url, address, chain_id), number)
    return Verification(verify_proof(sent.parsed, number, who, trusted))


def trusted_head(head: str) -> Trusted:
    """Return a head that was kept, 0x-hex, as what a proof is held against."""
    from ledger.audit.proofs.trust import TrustedHead

    return TrustedHead(digest_of_head(head))


def _contract_of(target: Target, number: int) -> Trusted:
    from ledger.audit.proofs.trust import read_trusted_contract

    if target.remote is not None:
        raise ConfigurationError("run: a service is not trusted; name head= or rpc_url= instead")
    with opened_ledger(target) as ledger:
        return read_trusted_contract(ledger, number)
