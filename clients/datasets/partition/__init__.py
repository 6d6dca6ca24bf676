"""Dividing the samples of a data set among clients: one file per partitioner."""
