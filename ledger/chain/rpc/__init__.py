"""Any chain behind JSON-RPC, and the embedded chain served to others in the same form."""
