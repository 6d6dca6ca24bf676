"""How a trainer's distances to the members become one number (Eq. computeScore)."""
