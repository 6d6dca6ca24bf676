"""One round in one file: everything that an audit of it needs, from any source, checked offline."""
