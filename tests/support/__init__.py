"""Builders that the tests of all packages share; `tests/README.md` says which is for what."""
