"""Audits on request: each in its own process with limits, its report stored.

A verification runs the function of `cmfl audit` over its own view of chain and blobs, and stores
the same bytes. Users who do not trust the service run the command.
"""
