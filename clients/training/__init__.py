"""Where the arithmetic of a run is done: training, distances and evaluation, on any layout."""
