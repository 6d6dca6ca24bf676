"""The rules of a round: the paper's two strategies and ours, by their plain, binding code."""
