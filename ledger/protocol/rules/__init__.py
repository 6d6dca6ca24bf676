"""The rules that a run may choose among: one small file each, listed in `registry.py`.

A rule has a name (as in TOML and in the run document), what it computes, and the sentence by
which it is explained. Adding one takes its file and one line of the registry.
"""
