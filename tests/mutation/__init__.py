"""Mutation testing of the contract: each small change must make some test fail."""
