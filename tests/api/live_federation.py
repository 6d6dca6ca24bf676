"""A federation on a real chain of a home, its mail in a folder: what a service looks at."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.actors.journal import FileJournal
from ledger.actors.view import RoundView
from ledger.chain.embedded.embedded_chain import EmbeddedChain
from ledger.protocol.payloads import Payload
from ledger.protocol.types import ClientId
from ledger.storage.blobs import FolderBlobs
from ledger.storage.opening import mailbox_at
from tests.actors.deployed import Deployed, deployed_on
from tests.actors.support import PARAMETERS

SECONDS = 600  # of view 0: nothing is late before a test has looked


@dataclass(frozen=True, slots=True)
class LiveFederation:
    """A federation, and what a service is given of it."""

    home: Path
    mailbox: Path
    actors: Deployed
    _ahead: list[float]

    @property
    def address(self) -> str:
        """The contract's, EIP-55."""
        return self.actors.context.ledger.address  # type: ignore[attr-defined,no-any-return]

    def pass_time(self, seconds: float) -> None:
        """Let an empty block come so much later."""
        self._ahead[0] += seconds
        chain = self.actors.context.ledger
        self.actors.driver.mine_to(chain.newest_block().number + 1)

    def step(self, view: RoundView, member: ClientId, now: float) -> RoundView:
        """Let one member do what there is for it at a time, and return what one sees then."""
        place = view.inputs.participants.members.index(member)
        actor = self.actors.members(view)[place]
        self.actors.driver.apply(actor.step(view, now))
        return self.actors.observer.look(view)


@contextmanager
def live_federation(folder: Path) -> Iterator[LiveFederation]:
    """Deploy a federation and open its first round."""
    ahead = [0.0]
    home, mailbox = folder / "home", folder / "mailbox"
    home.mkdir(parents=True)
    run = home / "runs" / "live"
    run.mkdir(parents=True)
    with EmbeddedChain.create(
        home / "chain.sqlite", clock=lambda: time.time() + ahead[0], synchronous="NORMAL"
    ) as chain:
        made = deployed_on(chain, run, replace(PARAMETERS, view_seconds=SECONDS))
        blobs = FolderBlobs(home / "blobs")
        for digest in (
            made.context.ledger.deployment().model,
            made.context.ledger.deployment().config,
        ):
            blobs.put_payload(Payload(made.blobs.get(digest, 1 << 20), digest))
        context = replace(made.context, blobs=blobs, mailbox=mailbox_at(str(mailbox)))
        yield LiveFederation(home, mailbox, Deployed(context, made.blobs), ahead)
        assert isinstance(context.journal, FileJournal)
        context.journal.close()
