"""What the answers are made of."""
