"""Finality: one rule for the newest final block, and a record of the blocks that were acted on."""
