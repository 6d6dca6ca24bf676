"""The mutants of the contract: one small change of one source, of the compiler's syntax tree.

Reasons of refusals, names and types are left alone.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from contracts.build import CONTRACT, HERE

MUTATED = (CONTRACT, "ballots.vy", "ranking.vy")
KINDS = {
    "guard": "a refusal does not happen",
    "comparison": "a comparison is inverted",
    "boundary": "a comparison includes its bound, or excludes it",
    "constant": "a number, a flag or some bytes differ",
    "store": "a write is missing, or writes something else",
    "hash field": "a hashed or signed text lacks a part, or has two in the other order",
    "event field": "an event is missing, or has two fields in each other's place",
    "arithmetic": "an operator on numbers or bits differs",
    "clamped": "a number is bounded by one that the sender of a transaction names",
    "boolean": "an and is an or, or a negation is missing",
    "returned": "a function returns something else",
    "control": "a loop does not end or continue where it should",
}


def _pairs(text: str) -> dict[bytes, bytes]:
    """Return what is put in the place of which operator; a blank is written `_`."""
    words = [word.replace(b"_", b" ") for word in text.encode().split()]
    return dict(zip(words[::2], words[1::2], strict=True))


CHANGES = (
    (_pairs("== !=  != ==  < >=  >= <  > <=  <= >  in not_in  not_in in"), "comparison"),
    (_pairs("< <=  <= <  > >=  >= >"), "boundary"),
    (_pairs("+ -  - +  * +  / *  // *  % //  ** *  << >>  >> <<  & |  | &  ^ |"), "arithmetic"),
)
TOKEN = re.compile(rb"\bnot\s+in\b|\bin\b|\*\*|//|<<|>>|[=!<>]=|[-+*/%&|^<>]")
COMMENT = re.compile(rb"#[^\n]*")
HASHED = {"concat", "abi_encode"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of the bytes from `begin` to `end`; its name stays when lines move."""

    path: str
    begin: int
    end: int
    replacement: str
    original: str
    kind: str
    line: int
    function: str
    name: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.begin] + self.replacement.encode() + source[self.end :]


def mutants() -> list[Mutant]:
    files = [(f"contracts/{name}", (HERE / name).read_bytes()) for name in MUTATED]
    return [mutant for path, source in files for mutant in mutants_of(path, source)]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return the mutants of a file, in the order of the source, each change once."""
    from vyper.ast import nodes, parse_to_ast

    maker = _Edits(source, nodes)
    for node in parse_to_ast(source.decode()).get_descendants():
        maker.take(node)
    found: dict[tuple[int, int, bytes], Mutant] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for begin, end, text, kind, line, function in sorted(maker.found, key=lambda edit: edit[:2]):
        if (begin, end, text) in found or source[begin:end] == text:
            continue
        original = source[begin:end].decode()
        key = (path, function, kind, one_line(original), one_line(text.decode()))
        name = hashlib.sha256("\0".join((*key, str(seen[key]))).encode()).hexdigest()[:12]
        seen[key] += 1
        found[begin, end, text] = Mutant(
            path, begin, end, text.decode(), original, kind, line, function, name
        )
    return list(found.values())


def one_line(text: str) -> str:
    """Return a text without line breaks."""
    return " ".join(text.split())


class _Edits:
    """Collects the edits of one source."""

    def __init__(self, source: bytes, nodes: Any) -> None:
        self.found: list[tuple[int, int, bytes, str, int, str]] = []
        self._source = source
        self._nodes = nodes
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def take(self, node: Any) -> None:
        """Add the edits of one node."""
        name = f"_of_{type(node).__name__.lower()}"
        make = getattr(self, name, None)
        if make is not None:
            make(node)

    def _of_assert(self, node: Any) -> None:
        self._replace("guard", node, b"pass")

    _of_raise = _of_assert

    def _of_compare(self, node: Any) -> None:
        self._operator(node, node.left, node.right)

    _of_binop = _of_compare

    def _of_augassign(self, node: Any) -> None:
        self._replace("store", node, b"pass")
        self._operator(node, node.target, node.value)

    def _of_boolop(self, node: Any) -> None:
        values = node.values
        for left, right in pairwise(values):
            begin, end = self._end(left), self._begin(right)
            gap = self._source[begin:end]
            other = gap.replace(b" and ", b" or ") if b" and " in gap else gap
            other = gap.replace(b" or ", b" and ") if other == gap else other
            self._add("boolean", node, begin, end, other)

    def _of_unaryop(self, node: Any) -> None:
        if type(node.op).__name__ in {"Not", "Invert"}:
            self._replace("boolean", node, self._text(node.operand))

    def _of_name(self, node: Any) -> None:
        function = node.get_ancestor(self._nodes.FunctionDef)
        if function is None or not self._is_external(function) or self._is_written(node):
            return
        arguments = {one.arg: self._text(one.annotation) for one in function.args.args}
        kind = {**arguments, **self._locals(function)}.get(node.id, b"")
        if not kind.startswith(b"uint"):
            return
        for name in sorted(set(arguments) - {node.id}):
            if arguments[name] == kind:
                text = b"(" + self._text(node) + b", " + name.encode() + b")"
                # Not 0, which stands for none: that would be seen too easily.
                self._replace("clamped", node, b"max(1, min" + text + b")")
                self._replace("clamped", node, b"max" + text)

    def _of_int(self, node: Any) -> None:
        if self._is_code(node):
            self._replace("constant", node, b"%d" % (node.value + 1))
            if node.value > 0:
                self._replace("constant", node, b"%d" % (node.value - 1))

    def _of_hex(self, node: Any) -> None:
        text = self._text(node)
        self._replace("constant", node, text[:-1] + (b"0" if text[-1:] != b"0" else b"1"))

    def _of_nameconstant(self, node: Any) -> None:
        self._replace("constant", node, b"False" if node.value else b"True")

    def _of_bytes(self, node: Any) -> None:
        text = self._text(node)
        self._replace("constant", node, text[:-2] + b"?" + text[-1:])

    def _of_str(self, node: Any) -> None:
        refusals = (self._nodes.Assert, self._nodes.Raise)
        if self._is_code(node) and not any(map(node.get_ancestor, refusals)):
            self._of_bytes(node)

    def _of_assign(self, node: Any) -> None:
        self._replace("store", node, b"pass")
        following = self._next_statement(node)
        if following is not None and type(following).__name__ == "Assign":
            # An immutable must be written: with the next one's value.
            self._replace("store", node.value, self._text(following.value))
        if type(following).__name__ != "Assign" and not isinstance(node.value, self._nodes.Int):
            self._emptied("store", node.value)

    def _of_expr(self, node: Any) -> None:
        if type(node.value).__name__ == "Call":
            guard = b"_require" in self._text(node.value.func)
            self._replace("guard" if guard else "store", node, b"pass")

    def _of_call(self, node: Any) -> None:
        name = getattr(node.func, "id", "")
        if name in HASHED:
            self._left_out("hash field", node)
            self._swapped("hash field", node.args)
        if name in {"max", "min"}:
            other = b"min" if name == "max" else b"max"
            self._replace("arithmetic", node.func, other)
        if node.keywords:
            is_event = type(node.get_ancestor()).__name__ == "Log"
            kind = "event field" if is_event else "returned"
            self._swapped(kind, [keyword.value for keyword in node.keywords])

    def _of_log(self, node: Any) -> None:
        self._replace("event field", node, b"pass")

    def _of_list(self, node: Any) -> None:
        self._swapped("event field", node.elements)

    def _of_tuple(self, node: Any) -> None:
        if type(node.get_ancestor()).__name__ == "Return":
            self._swapped("returned", node.elements)

    def _of_break(self, node: Any) -> None:
        self._replace("control", node, b"pass")

    def _of_for(self, node: Any) -> None:
        first = node.body[0]
        begin = self._begin(first)
        self._add("control", first, begin, begin, b"break; ")

    def _of_return(self, node: Any) -> None:
        value = node.value
        function = node.get_ancestor(self._nodes.FunctionDef)
        if value is None or function is None or function.returns is None:
            return
        kind = self._text(function.returns)
        if kind == b"bool":
            self._replace("returned", value, b"not (" + self._text(value) + b")")
        elif kind.startswith(b"uint"):
            self._replace("returned", value, b"(" + self._text(value) + b") ^ 1")
        if type(value).__name__ != "Tuple":
            self._replace("returned", value, b"empty(" + kind + b")")

    def _emptied(self, kind: str, value: Any) -> None:
        target = value.get_ancestor().target
        if type(target).__name__ == "Attribute" and self._text(target).startswith(b"self."):
            self._replace(kind, value, b"empty(bytes32)")

    def _left_out(self, kind: str, node: Any) -> None:
        arguments = node.args
        for place, argument in enumerate(arguments):
            if len(arguments) < 2:
                return
            begin, end = self._begin(argument), self._end(argument)
            if place + 1 < len(arguments):
                end = self._begin(arguments[place + 1])
            else:
                begin = self._end(arguments[place - 1])
            self._add(kind, argument, begin, end, b"")

    def _swapped(self, kind: str, values: list[Any]) -> None:
        for one, other in pairwise(values):
            gap = self._source[self._end(one) : self._begin(other)]
            text = self._text(other) + gap + self._text(one)
            self._add(kind, one, self._begin(one), self._end(other), text)

    def _operator(self, node: Any, left: Any, right: Any) -> None:
        begin = self._end(left)
        gap = COMMENT.sub(
            lambda found: b" " * len(found[0]), self._source[begin : self._begin(right)]
        )
        found = TOKEN.search(gap)
        if found is None:
            return
        operator = b" ".join(found[0].split())
        for changes, kind in CHANGES:
            if operator in changes:
                place = (begin + found.start(), begin + found.end())
                self._add(kind, node, *place, changes[operator])

    def _is_external(self, function: Any) -> bool:
        return any(getattr(one, "id", "") == "external" for one in function.decorator_list)

    def _locals(self, function: Any) -> dict[str, bytes]:
        declared = function.get_descendants(self._nodes.AnnAssign)
        return {one.target.id: self._text(one.annotation) for one in declared}

    def _is_written(self, node: Any) -> bool:
        """Say whether a name stands where a value is put, not where one is taken."""
        parent = node.get_ancestor()
        return parent is not None and getattr(parent, "target", None) is node

    def _is_code(self, node: Any) -> bool:
        """Say whether a literal is a value: neither the bound of a type nor of an array."""
        function = node.get_ancestor(self._nodes.FunctionDef)
        declared = node.get_ancestor((self._nodes.VariableDecl, self._nodes.AnnAssign))
        if function is None and declared is None:
            return False
        return declared is None or not self._lies_in(node, declared.annotation)

    def _lies_in(self, node: Any, outer: Any) -> bool:
        return self._begin(outer) <= self._begin(node) and self._end(node) <= self._end(outer)

    def _next_statement(self, node: Any) -> Any:
        body = node.get_ancestor().body if hasattr(node.get_ancestor(), "body") else []
        places = [place for place, one in enumerate(body) if one is node]
        if not places or places[0] + 1 >= len(body):
            return None
        return body[places[0] + 1]

    def _begin(self, node: Any) -> int:
        return int(self._starts[node.lineno - 1] + node.col_offset)

    def _end(self, node: Any) -> int:
        return int(self._starts[node.end_lineno - 1] + node.end_col_offset)

    def _text(self, node: Any) -> bytes:
        return self._source[self._begin(node) : self._end(node)]

    def _replace(self, kind: str, node: Any, text: bytes) -> None:
        self._add(kind, node, self._begin(node), self._end(node), text)

    def _add(self, kind: str, node: Any, begin: int, end: int, text: bytes) -> None:
        function = node.get_ancestor(self._nodes.FunctionDef)
        line = self._source.count(b"\n", 0, begin) + 1
        name = "" if function is None else str(function.name)
        self.found.append((begin, end, text, kind, line, name))
