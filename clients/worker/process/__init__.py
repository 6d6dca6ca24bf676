"""The process round a worker: its folder, its loop, what it tells of itself."""
