"""An attack that knows the run's rules and stays just inside them."""
