"""Tests with Flower itself, in an environment of its own: `make flower`."""
