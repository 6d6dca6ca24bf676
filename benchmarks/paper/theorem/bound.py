"""The bound of Theorem 1, term by term as it is printed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Constants of the bound.

    G², σ_k², κ², φ_min and φ_max are the extremes that one run has shown. The theorem means those
    of all that could have happened, so that the bound printed with these is a lower estimate.

    Attributes:
        smoothness: L of assumption 1.
        mu: of assumption 2.
        variance: Σ p_k σ_k², with σ_k² of assumption 3.
        gradient_squared: G² of assumption 4.
        kappa_squared: κ² of assumption 5.
        heterogeneity: Γ of definition 1.
        least_gap: φ_min of definition 2.
        largest_gap: φ_max of definition 2.
        start_squared: ‖w_1 − w*‖².
    """

    smoothness: float
    mu: float
    variance: float
    gradient_squared: float
    kappa_squared: float
    heterogeneity: float
    least_gap: float
    largest_gap: float
    start_squared: float
    local_steps: int

    @property
    def gamma(self) -> float:
        """γ = 4 L / mu."""
        return 4 * self.smoothness / self.mu


@dataclass(frozen=True, slots=True)
class Bound:
    """The five terms of the bound after some steps.

    Attributes:
        gradients: of G² and σ².
        lasting: 8 L Γ / (3 mu) · (φ_max / φ_min − 1), which stays however long one trains.
    """

    gradients: float
    kappa: float
    heterogeneity: float
    start: float
    lasting: float

    @property
    def total(self) -> float:
        """Upper bound of E[F(w^T)] − F*."""
        return self.gradients + self.kappa + self.heterogeneity + self.start + self.lasting


def bound_after(steps: int, constants: Constants) -> Bound | None:
    """Return the right side of Theorem 1.

    1 / (T + γ) [ (4 L (32 τ² G² + Σ p_k σ_k²) + 24 L² κ²) / (3 mu² φ_min) + 8 L² Γ / mu²
    + L γ ‖w_1 − w*‖² / 2 ] + 8 L Γ / (3 mu) · (φ_max / φ_min − 1)

    Args:
        steps: T, counted in steps of SGD and not in rounds: its proof has T = i τ.

    Returns:
        Its terms; None where φ_min is not above 0: the proof divides by it, and says nothing.
    """
    terms = constants
    if terms.least_gap <= 0:
        return None
    decay = 1 / (steps + terms.gamma)
    condition = terms.smoothness / terms.mu
    shared = decay * 4 / (3 * terms.mu**2 * terms.least_gap)
    return Bound(
        gradients=shared
        * terms.smoothness
        * (32 * terms.local_steps**2 * terms.gradient_squared + terms.variance),
        kappa=shared * 6 * terms.smoothness**2 * terms.kappa_squared,
        heterogeneity=decay * 8 * condition**2 * terms.heterogeneity,
        start=decay * terms.smoothness * terms.gamma * terms.start_squared / 2,
        lasting=8 * condition * terms.heterogeneity / 3 * (terms.largest_gap / terms.least_gap - 1),
    )
