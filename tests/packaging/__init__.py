"""What is published: metadata, licences, dependencies, and installations of the wheel."""
