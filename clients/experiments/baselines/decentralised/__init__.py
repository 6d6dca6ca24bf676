"""Systems without a server in which every participant has its own model."""
