"""Clients as processes of their own: the simulation's actors, driven by a shared chain and time."""
