"""The paper's claims, each with a test on rows that says whether it holds."""
