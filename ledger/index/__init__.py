"""An index of deployments' histories in SQL, for lists and look-ups that a chain answers slowly.

It holds nothing that is not on the chain or in a blob, is never trusted by the audit, and can be
deleted and built again to the same content. `indexer.py` writes it, `reading.py` reads it.
"""
