"""What cannot be taken back any more: one rule for it, and a memory of what was built on it."""
