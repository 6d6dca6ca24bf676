"""Blobs: bytes under their sha256, so that nobody has to trust where they are kept."""
