"""One round in one file: everything that an audit of it needs, from anybody, checked offline."""
