"""Documents about a run in the forms of other tools, and what they follow from."""
