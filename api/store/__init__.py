"""The store between machines: blobs and mail of one contract, written by its clients alone."""
