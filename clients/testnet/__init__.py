"""A federation of real processes on one machine: a chain, a store, workers, and who minds them.

Nothing here takes part in a round: processes are begun, watched, disturbed and ended, and what
they have done is read from the chain like anybody else does.
"""
