"""The EVM itself: py-evm's Prague chain over our own storage."""
