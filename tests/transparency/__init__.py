"""Trees, notes, checkpoints, policies, witnesses, and what auditors get of them."""
