"""Several clients trained at once, each with parameters of its own.

A module is read as a chain of layers (`tracing`), each layer is computed in the way that suits its
size (`choice`), and a chunk of clients takes its steps together (`network`, `trainer`).
"""
