"""The paper's claims and theorem, judged by the rows of the experiments."""
