"""Object storage: one port, its adapters, and two typed views of it, blobs and mail."""
