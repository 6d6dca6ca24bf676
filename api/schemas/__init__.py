"""What the answers look like."""
