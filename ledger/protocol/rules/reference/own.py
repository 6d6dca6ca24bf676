"""A member's own update is what it holds others against: the paper's."""

from ledger.protocol.rules.reference.rule import ReferenceRule

OWN = ReferenceRule(name="own", travel=None, distance=None, sentence="")
