"""The status of an open round for observers: stage, each client's progress, late clients.

Pure: it follows from the chain, from genuine envelopes and from the time, never from a
client's claim about itself.
"""
