"""Which trainers of a ranking enter the model (section "Selection Strategy")."""
