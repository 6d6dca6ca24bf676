"""Runs in a home: prepared, opened, measured, taken up again."""
