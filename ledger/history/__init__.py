"""The recorded history of a deployment: rounds, clients, and their JSON answers.

`history.py` folds a deployment's events. `round.py` defines each term about a client (sampled,
committed, ranked, accepted, served, voted, refused, banned). `answers_*.py` hold each answer's type
and the function that builds it; `LocalHistory` gives them all. Only the digests of blobs are
checked here; `ledger.audit` verifies the rest.
"""
