"""Targets: chain, blobs, files and service of a run, and how each is opened.

Shared by the Python face and the command line: no command-line library is imported here.
"""
