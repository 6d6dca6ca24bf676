"""Models as flat parameter vectors: one file per model, `registry` to choose by name."""
