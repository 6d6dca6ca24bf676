"""A witness of logs over HTTP, and the static files of a log."""
