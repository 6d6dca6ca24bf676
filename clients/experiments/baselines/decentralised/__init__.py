"""Systems without a server in which every participant keeps a model of its own."""
