"""Whether a chain file still is what the EVM made, and can go on."""
