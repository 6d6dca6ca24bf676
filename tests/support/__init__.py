"""Builders that the tests of all packages share; `docs/project/testing.md` lists them."""
