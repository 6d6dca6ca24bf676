"""One command that runs tests, whole runs and measurements on a GPU."""
