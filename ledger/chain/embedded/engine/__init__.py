"""py-evm's machine with faster parts: opcode loop, state reads, `ecrecover`.

Each part replaces one of py-evm's and gives the same result for every input, so that gas, state
roots and block hashes are py-evm's. The parts that it replaces stay in use: for whatever the faster
one does not cover, and as the reference that `EmbeddedReader.verify` executes blocks with.
"""
