"""What became of one client in one round, as a document that anybody can check."""
