"""The process of a worker: setup, folder, main loop, status and metrics."""
