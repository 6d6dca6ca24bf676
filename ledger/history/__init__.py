"""What happened: one round, one client's part in it, and how both are told.

`round.py` says what a round is and `participation.py` what each word about a client means (sampled,
committed, ranked, accepted, served, voted, refused, banned); every other place that tells of a
round uses these. Nothing here is verified beyond what a blob's digest verifies: `ledger.audit`
does that.
"""
