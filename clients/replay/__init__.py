"""Training repeated: each chosen update of a run, bit for bit, from chain, blobs and its data."""
