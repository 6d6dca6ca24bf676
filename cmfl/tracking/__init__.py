"""Experiment trackers: the rows of a run, logged to MLflow, TensorBoard and Weights & Biases."""
