"""Division of a data set's samples among clients: one file per partitioner."""
