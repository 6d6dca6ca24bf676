"""Mutation testing: each small change of the contract or the protocol must make some test fail.

`python -m tests.mutation --help` says how it runs. Nothing here writes into the tree: a mutated
contract is compiled in memory and put in the place of the artefact, a mutated module is what its
import gives, each in a process of its own.
"""
