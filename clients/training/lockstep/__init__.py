"""The lockstep path: several clients take each step of SGD together."""
