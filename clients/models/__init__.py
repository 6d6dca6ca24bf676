"""Models: one file per built-in model, `registry` to choose by name, `user` for all others."""
