"""The paper's claims, official figures and theorem, judged by the rows of the experiments."""
