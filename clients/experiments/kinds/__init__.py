"""Kinds of methods, each a module that plays it."""
