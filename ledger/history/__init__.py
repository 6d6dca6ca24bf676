"""The recorded history of a deployment: rounds, clients, and their JSON responses.

`round.py` defines a round and `participation.py` each term about a client (sampled, committed,
ranked, accepted, served, voted, refused, banned). `responses/` holds the JSON types, and
`serialise/` the functions that make them. `source.py` has the ports: rounds from a chain or an
index, responses made here or read from a service. Only the digests of blobs are checked here;
`ledger.audit` verifies the rest.
"""
