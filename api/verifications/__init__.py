"""Audits that the service runs on request: each in a process of its own, bounded, its report kept.

A verification never decides anything that `cmfl audit` would not: it runs the same function over
its own view of the chain and the blobs, and what it keeps are that audit's bytes. Whoever does not
trust this service runs the command.
"""
