"""The recorded history of a deployment: rounds, clients, and their JSON responses.

`history.py` folds a deployment's events. `participation.py` defines each term about a client
(sampled, committed, ranked, accepted, served, voted, refused, banned). Only the digests of blobs
are checked here; `ledger.audit` verifies the rest.
"""
