"""Reading files that may be damaged or hostile: arrays, tables, LEAF's JSON, word vectors."""
