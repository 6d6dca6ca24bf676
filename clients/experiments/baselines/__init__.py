"""Baselines of CMFL, on the same data, model, engine, seeds and attackers."""
