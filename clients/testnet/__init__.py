"""A network of real processes on one machine: chain, store, service and workers.

Nothing here takes part in a round. Processes are started, watched, disturbed and ended, and their
results are read from the chain.
"""
