"""What CMFL is compared with, on the same data, model, engine, seeds and attackers."""
