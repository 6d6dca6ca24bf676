"""How the tables of the index came to be what they are, step by step, for Alembic."""
