"""Up to which distance strategy III accepts: what the committee certifies beside the ranking."""
