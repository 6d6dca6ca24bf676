"""What an owner needs to take part: a key, an entry in the registry, and data of its own."""
