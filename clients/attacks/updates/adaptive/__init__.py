"""An attacker that knows the rule in force and stays just inside it."""
