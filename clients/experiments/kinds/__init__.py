"""How each kind of method is played."""
