"""The EVM itself: eth-tester's Prague chain on py-evm, over our own storage."""
