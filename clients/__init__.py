"""The clients: their data, their training, their scores, and whole runs with all of them."""
