"""Which operator is put in the place of which; the two languages write them alike."""

from __future__ import annotations

import re

from tests.mutation.mutants import Kind

OPPOSITE = {
    b"==": b"!=",
    b"!=": b"==",
    b"<": b">=",
    b">=": b"<",
    b">": b"<=",
    b"<=": b">",
    b"in": b"not in",
    b"not in": b"in",
    b"is": b"is not",
    b"is not": b"is",
}
WITH_THE_BOUND = {b"<": b"<=", b"<=": b"<", b">": b">=", b">=": b">"}
ARITHMETIC = {
    b"+": b"-",
    b"-": b"+",
    b"*": b"+",
    b"/": b"*",
    b"//": b"*",
    b"%": b"//",
    b"**": b"*",
    b"<<": b">>",
    b">>": b"<<",
    b"&": b"|",
    b"|": b"&",
    b"^": b"|",
}
TOKEN = re.compile(rb"\bnot\s+in\b|\bis\s+not\b|\bin\b|\bis\b|\*\*|//|<<|>>|[=!<>]=|[-+*/%&|^<>]")
COMMENT = re.compile(rb"#[^\n]*")
CHANGES = (
    (OPPOSITE, Kind.COMPARISON),
    (WITH_THE_BOUND, Kind.BOUNDARY),
    (ARITHMETIC, Kind.ARITHMETIC),
)


def operator_between(source: bytes, begin: int, end: int) -> tuple[int, int, bytes] | None:
    """Return where the operator between two operands lies, and which it is.

    Args:
        source: of the file.
        begin: behind the left operand.
        end: where the right operand begins; parentheses may lie between.
    """
    gap = COMMENT.sub(lambda found: b" " * len(found[0]), source[begin:end])
    found = TOKEN.search(gap)
    if found is None:
        return None
    return begin + found.start(), begin + found.end(), b" ".join(found[0].split())
