"""The paper as pure functions: frozen dataclasses and free functions, no disk, network or clock.

Start reading in `algorithms.py`. The map from the paper to the code, the contract and its events
is `paper_map.py`; `rounds.py` is the executable specification of the contract.
"""
