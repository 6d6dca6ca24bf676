"""Training and evaluation engines: in this process, in worker processes, or on Ray."""
