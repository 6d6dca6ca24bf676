"""The configuration of a run: its settings, how they are read, checked and described."""
