"""Arguments of the Python face: their types, and the settings that they become."""
