"""Presentation of results in a script or notebook: tables, figures and progress."""
