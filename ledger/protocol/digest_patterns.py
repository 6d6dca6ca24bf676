"""Patterns of digests in text, one for each form.

Programs write them in lower case, so that equal digests are equal texts; people may type any case.
"""

from __future__ import annotations

BARE = "[0-9a-f]{64}"
"""A blob's name, as `sha256sum` prints it."""

PREFIXED = f"0x{BARE}"
"""A digest in an answer or in a document."""

BARE_ANY_CASE = "[0-9a-fA-F]{64}"

PREFIXED_ANY_CASE = f"0x{BARE_ANY_CASE}"
"""A head that a user has copied from an audit."""

EITHER_FORM_ANY_CASE = f"(0x)?{BARE_ANY_CASE}"
"""A digest in a search."""
