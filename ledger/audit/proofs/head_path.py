"""The chain of heads as links: what each head commits to, from one head to a later one.

A head commits to everything before it (docs/protocol.md, section 10). A later head of a
run, with the links up to it, proves what the links say.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ledger.protocol.fold import BanLink

if TYPE_CHECKING:
    from ledger.protocol.fold import EndLink, Link
    from ledger.protocol.types import Digest


@dataclass(frozen=True)
class HeadPath:
    """The way from one head to a later one.

    Attributes:
        start: the first head; the configuration's digest where the path begins with the run.
        links: what was added, oldest first.
    """

    start: Digest
    links: tuple[Link, ...]

    @cached_property
    def heads(self) -> tuple[Digest, ...]:
        """Every head on the way: the first one, and the one after each link."""
        heads = [self.start]
        for link in self.links:
            heads.append(link.head_after(heads[-1]))
        return tuple(heads)

    def end_of(self, round_number: int) -> int | None:
        """Return the place of the link that ended a round; None if there is none."""
        for place, link in enumerate(self.links):
            if not isinstance(link, BanLink) and link.round == round_number:
                return place
        return None

    def ended(self, round_number: int) -> EndLink | None:
        """Return the link that ended a round; None if there is none."""
        place = self.end_of(round_number)
        link = None if place is None else self.links[place]
        return None if isinstance(link, BanLink) else link

    def before_end_of(self, round_number: int) -> HeadPath:
        """Return the way up to where a round ends: a head after it says nothing of what follows."""
        return HeadPath(self.start, self.links[: self.end_of(round_number)])

    def bans(self) -> tuple[BanLink, ...]:
        """Return the bans on the way, oldest first."""
        return tuple(link for link in self.links if isinstance(link, BanLink))
