"""The paper as pure functions: frozen dataclasses and free functions, no disk, network or clock.

Start reading in `judgement.py`, which members vote by and audits compare with. `rounds.py` is the
executable specification of the contract. `docs/explanation/paper-map.md` names for each piece of
the paper the function that computes it, the transaction that enforces it, and the event that
records it.
"""
