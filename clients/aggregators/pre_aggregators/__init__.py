"""What is done to the updates of a round before they are aggregated: one file each."""
