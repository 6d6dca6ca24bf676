"""The Vyper contracts and their committed build artefacts: data, not code."""
