"""Transformers with adapters: small random bases, made by the tests."""
