"""The EVM: py-evm's Prague chain over our own storage."""
