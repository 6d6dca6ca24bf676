"""Who answers at which path."""
