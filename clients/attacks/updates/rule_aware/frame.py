"""The vectors that an attacker knows, and combinations of them as coefficients.

All that is sent or played lies in their span, so that lengths and angles follow from one table of
inner products, however large the model is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from clients.attacks.updates.update_attack import AttackInput
from ledger.protocol.errors import ConfigurationError

LENGTH = 2.0
"""s: multiple of the median length, beyond which distances of directions grow."""

_NOTHING = 1e-12
"""Square of a length below which a combination of unit vectors is rounding error."""


@dataclass(frozen=True, eq=False)
class Frame:
    """Unit vectors known in a round; a zero vector stays zero.

    Attributes:
        vectors: shape (k, d): the colluders' updates, the updates published in the two rounds
            before, noise of each colluder, p, h, e, and the server's last aggregate.
        norms: lengths of the vectors before they were divided by them, shape (k,).
        published: rows of the honest clients' updates of each of the two rounds before, the later
            round first.
        goal: row of p, the direction of w_t − w_bad.
        drift: row of e, the direction that honest clients took in the rounds before; before
            anything is published it is that of the colluders' own mean.
    """

    vectors: NDArray[np.float64]
    norms: NDArray[np.float64]
    own: NDArray[np.int64]
    published: tuple[NDArray[np.int64], ...]
    noise: NDArray[np.int64]
    goal: int
    travel: int
    drift: int
    last: int

    @classmethod
    def of(cls, attacker: AttackInput) -> Frame:
        """Return the frame of a round.

        Args:
            attacker: with finite updates of its colluders.
        """
        if attacker.model is None or attacker.bad_model is None:
            raise ConfigurationError(
                "this attack needs one model for all clients, and one that the attackers have "
                "trained on false labels: it attacks a committee or a server"
            )
        own, dimension = attacker.colluders, attacker.colluders.shape[1]
        noise = attacker.rng.standard_normal(own.shape)
        goal = attacker.model.astype(np.float64) - attacker.bad_model
        travel = np.zeros(dimension) if attacker.travel is None else attacker.travel
        drift = attacker.mean if attacker.drift is None else attacker.drift
        last = np.zeros(dimension) if attacker.server is None else attacker.server.last
        special = goal, travel, drift, last
        known = [update for updates in attacker.published for update in updates]
        raw = np.stack([*own, *known, *noise, *special], dtype=np.float64)
        norms = np.sqrt((raw * raw).sum(axis=1))
        vectors = np.divide(raw, norms[:, None], out=np.zeros_like(raw), where=norms[:, None] > 0)
        count, end = len(own), 2 * len(own) + len(known)
        ends = np.cumsum([count, *map(len, attacker.published)]).tolist()
        return cls(
            vectors=vectors,
            norms=norms,
            own=np.arange(count),
            published=tuple(np.arange(*pair) for pair in pairwise(ends)),
            noise=np.arange(end - count, end),
            goal=end,
            travel=end + 1,
            drift=end + 2,
            last=end + 3,
        )

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """Inner products of the vectors, shape (k, k)."""
        return np.asarray(self.vectors @ self.vectors.T)

    @cached_property
    def length(self) -> float:
        """t, the median length of the colluders' updates."""
        return float(np.median(self.norms[self.own]))

    @property
    def honest(self) -> NDArray[np.int64]:
        """Rows of all known honest updates of others, else of the colluders' own."""
        return np.concatenate(self.published or (self.own,))

    def row(self, rows: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return the coefficients of some vectors, one row for each."""
        return np.asarray(np.eye(len(self.vectors))[np.atleast_1d(rows)])

    def unit(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return each combination divided by its length; zeros if only rounding error is left.

        Args:
            coefficients: shape (rows, k).
        """
        squares = np.einsum("ij,jk,ik->i", coefficients, self.table, coefficients)[:, None]
        lengths = np.sqrt(np.maximum(squares, 0.0))
        is_something = squares > _NOTHING
        return np.asarray(
            np.divide(coefficients, lengths, out=np.zeros_like(coefficients), where=is_something)
        )

    def mean(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the unit mean of some vectors, shape (1, k)."""
        return self.unit(self.row(rows).mean(axis=0, keepdims=True))

    def residual(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return unit combinations without their part along the travel, shape (rows, k)."""
        along = coefficients @ self.table[:, self.travel]
        return self.unit(coefficients - along[:, None] * self.row(self.travel))

    def coordinates(self) -> NDArray[np.float64]:
        """Return the vectors in as few dimensions as they span, with the same inner products.

        Returns:
            Shape (k, k) or smaller.
        """
        if len(self.vectors) >= self.vectors.shape[1]:
            return self.vectors
        values, axes = np.linalg.eigh(self.table)
        return np.asarray(axes * np.sqrt(np.maximum(values, 0.0)))
