"""Playing the cells of an experiment: side by side, resumable, and audited."""
