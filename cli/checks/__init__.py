"""What `cmfl doctor` looks at: the machine, the home, the node. Each check says what it found."""
