"""An index of deployments' histories in SQL, for lists and look-ups that a chain answers slowly.

It holds nothing that is not on the chain or in a blob, the audit never reads it, and it can be
deleted and built again to the same content. `indexer.py` writes it, `index.py` reads it.
"""
