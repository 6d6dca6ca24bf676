"""The rules that a run may choose among: one file for each kind, all listed in `registry.py`.

A rule has a name (as in TOML and in the run document), a function, and the sentence by which it is
explained. Adding one takes its lines in a file of your own or of its kind, and one line of the
registry.
"""
