"""What a member holds an update against: its own one, or its own and the model's travel."""
