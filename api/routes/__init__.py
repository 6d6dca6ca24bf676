"""Endpoints by subject."""
