"""How 32 bytes are written where text is: one pattern for each form, and no other anywhere.

Written by programs they are in lower case, so that equal digests are equal texts; what people type
may be in any case, as other programs print it.
"""

from __future__ import annotations

BARE = "[0-9a-f]{64}"
"""A blob's name, as `sha256sum` prints it."""

PREFIXED = f"0x{BARE}"
"""A digest in an answer or in a document."""

BARE_ANY_CASE = "[0-9a-fA-F]{64}"

PREFIXED_ANY_CASE = f"0x{BARE_ANY_CASE}"
"""A head, as an audit printed it and somebody has copied it."""

EITHER_FORM_ANY_CASE = f"(0x)?{BARE_ANY_CASE}"
"""A digest that is looked for."""
