"""Figures of the experiments: what they show (`series`), and how it is drawn (all others)."""
