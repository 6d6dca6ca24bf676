"""A witness and a log over HTTP."""
