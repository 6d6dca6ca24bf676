"""Mutants of a Vyper source, made of the compiler's own syntax tree."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.mutation.mutants import Edit, Kind
from tests.mutation.operators import CHANGES, operator_between

HASHED = {"concat", "abi_encode"}


def edits_of(source: bytes) -> list[Edit]:
    """Return all small changes of a Vyper source.

    Reasons of refusals, names and types are left alone.

    Args:
        source: the file.
    """
    from vyper.ast import nodes, parse_to_ast

    tree = parse_to_ast(source.decode())
    maker = _VyperEdits(source, nodes)
    for node in tree.get_descendants():
        maker.take(node)
    return sorted(maker.found, key=lambda edit: (edit.begin, edit.end))


class _VyperEdits:
    """Collects the edits of one source."""

    def __init__(self, source: bytes, nodes: Any) -> None:
        self.found: list[Edit] = []
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
        self._replace(Kind.GUARD, node, b"pass")

    def _of_raise(self, node: Any) -> None:
        self._replace(Kind.GUARD, node, b"pass")

    def _of_compare(self, node: Any) -> None:
        self._operator(node, node.left, node.right)

    def _of_binop(self, node: Any) -> None:
        self._operator(node, node.left, node.right)

    def _of_augassign(self, node: Any) -> None:
        self._replace(Kind.STORE, node, b"pass")
        found = operator_between(self._source, self._end(node.target), self._begin(node.value))
        if found is not None:
            self._changed(node, *found)

    def _of_boolop(self, node: Any) -> None:
        values = node.values
        for left, right in pairwise(values):
            begin, end = self._end(left), self._begin(right)
            gap = self._source[begin:end]
            other = gap.replace(b" and ", b" or ") if b" and " in gap else gap
            other = gap.replace(b" or ", b" and ") if other == gap else other
            self._add(Kind.BOOLEAN, node, begin, end, other)

    def _of_unaryop(self, node: Any) -> None:
        if type(node.op).__name__ in {"Not", "Invert"}:
            self._replace(Kind.BOOLEAN, node, self._text(node.operand))

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
                self._replace(Kind.CLAMPED, node, b"max(1, min" + text + b")")
                self._replace(Kind.CLAMPED, node, b"max" + text)

    def _of_int(self, node: Any) -> None:
        if self._is_code(node):
            self._replace(Kind.CONSTANT, node, b"%d" % (node.value + 1))
            if node.value > 0:
                self._replace(Kind.CONSTANT, node, b"%d" % (node.value - 1))

    def _of_hex(self, node: Any) -> None:
        text = self._text(node)
        self._replace(Kind.CONSTANT, node, text[:-1] + (b"0" if text[-1:] != b"0" else b"1"))

    def _of_nameconstant(self, node: Any) -> None:
        self._replace(Kind.CONSTANT, node, b"False" if node.value else b"True")

    def _of_bytes(self, node: Any) -> None:
        text = self._text(node)
        self._replace(Kind.CONSTANT, node, text[:-2] + b"?" + text[-1:])

    def _of_str(self, node: Any) -> None:
        parents = {type(node.get_ancestor(kind)) for kind in self._refusals()}
        if self._is_code(node) and parents == {type(None)}:
            text = self._text(node)
            self._replace(Kind.CONSTANT, node, text[:-2] + b"?" + text[-1:])

    def _of_assign(self, node: Any) -> None:
        self._replace(Kind.STORE, node, b"pass")
        following = self._next_statement(node)
        if following is not None and type(following).__name__ == "Assign":
            # An immutable must be written: with the next one's value.
            self._replace(Kind.STORE, node.value, self._text(following.value))
        if type(following).__name__ != "Assign" and not isinstance(node.value, self._nodes.Int):
            self._emptied(Kind.STORE, node.value)

    def _of_expr(self, node: Any) -> None:
        value = node.value
        is_call = type(value).__name__ == "Call"
        if not is_call:
            return
        text = self._text(value.func)
        guard = b"_require" in text
        self._replace(Kind.GUARD if guard else Kind.STORE, node, b"pass")

    def _of_call(self, node: Any) -> None:
        name = getattr(node.func, "id", "")
        if name in HASHED:
            self._left_out(Kind.HASH_FIELD, node)
            self._swapped(Kind.HASH_FIELD, node.args)
        if name in {"max", "min"}:
            other = b"min" if name == "max" else b"max"
            self._replace(Kind.ARITHMETIC, node.func, other)
        if node.keywords:
            is_event = type(node.get_ancestor()).__name__ == "Log"
            kind = Kind.EVENT_FIELD if is_event else Kind.RETURNED
            self._swapped(kind, [keyword.value for keyword in node.keywords])

    def _of_log(self, node: Any) -> None:
        self._replace(Kind.EVENT_FIELD, node, b"pass")

    def _of_list(self, node: Any) -> None:
        self._swapped(Kind.EVENT_FIELD, node.elements)

    def _of_tuple(self, node: Any) -> None:
        if type(node.get_ancestor()).__name__ == "Return":
            self._swapped(Kind.RETURNED, node.elements)

    def _of_break(self, node: Any) -> None:
        self._replace(Kind.CONTROL, node, b"pass")

    def _of_for(self, node: Any) -> None:
        first = node.body[0]
        begin = self._begin(first)
        self._add(Kind.CONTROL, first, begin, begin, b"break; ")

    def _of_return(self, node: Any) -> None:
        value = node.value
        function = node.get_ancestor(self._nodes.FunctionDef)
        if value is None or function is None or function.returns is None:
            return
        kind = self._text(function.returns)
        if kind == b"bool":
            self._replace(Kind.RETURNED, value, b"not (" + self._text(value) + b")")
        elif kind.startswith(b"uint"):
            self._replace(Kind.RETURNED, value, b"(" + self._text(value) + b") ^ 1")
        if type(value).__name__ != "Tuple":
            self._replace(Kind.RETURNED, value, b"empty(" + kind + b")")

    def _emptied(self, kind: Kind, value: Any) -> None:
        target = value.get_ancestor().target
        if type(target).__name__ == "Attribute" and self._text(target).startswith(b"self."):
            self._replace(kind, value, b"empty(bytes32)")

    def _left_out(self, kind: Kind, node: Any) -> None:
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

    def _swapped(self, kind: Kind, values: list[Any]) -> None:
        for one, other in pairwise(values):
            gap = self._source[self._end(one) : self._begin(other)]
            text = self._text(other) + gap + self._text(one)
            self._add(kind, one, self._begin(one), self._end(other), text)

    def _operator(self, node: Any, left: Any, right: Any) -> None:
        found = operator_between(self._source, self._end(left), self._begin(right))
        if found is not None:
            self._changed(node, *found)

    def _changed(self, node: Any, begin: int, end: int, operator: bytes) -> None:
        for changes, kind in CHANGES:
            if operator in changes:
                self._add(kind, node, begin, end, changes[operator])

    def _is_external(self, function: Any) -> bool:
        """Say whether a function's arguments are the sender's."""
        return any(getattr(one, "id", "") == "external" for one in function.decorator_list)

    def _locals(self, function: Any) -> dict[str, bytes]:
        """Return the types of a function's own variables by their names."""
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

    def _refusals(self) -> tuple[Any, ...]:
        return (self._nodes.Assert, self._nodes.Raise)

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

    def _replace(self, kind: Kind, node: Any, text: bytes) -> None:
        self._add(kind, node, self._begin(node), self._end(node), text)

    def _add(self, kind: Kind, node: Any, begin: int, end: int, text: bytes) -> None:
        function = node.get_ancestor(self._nodes.FunctionDef)
        line = self._source.count(b"\n", 0, begin) + 1
        name = "" if function is None else str(function.name)
        self.found.append(Edit(kind, line, name, begin, end, text))
