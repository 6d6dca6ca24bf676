"""Containers, services and workflow, as far as they can be checked without any of them."""
