"""Responses that only the service gives: its status, live federations, problems."""
