"""Store server: blobs and mail of one contract between machines, written by its clients alone."""
