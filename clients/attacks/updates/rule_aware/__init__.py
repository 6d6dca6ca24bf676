"""Attacks that know the run's rule, its history, and where they want the model to go."""
