"""A persistent EVM in this process over one SQLite file: one writer, any number of readers."""
