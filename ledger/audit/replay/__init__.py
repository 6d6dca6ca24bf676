"""The contract's transactions once more, through the executable specification."""
