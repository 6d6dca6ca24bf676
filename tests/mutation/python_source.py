"""Mutants of a Python source, made of its syntax tree."""

from __future__ import annotations

import ast
from itertools import pairwise

from tests.mutation.mutants import Edit, Kind
from tests.mutation.operators import CHANGES, operator_between

HASHING = ("keccak", "sha256", "encode", "words", "concat", "sign", "pack")
GUARDS = ("_require", "require", "verify", "_verify")
WRITES = {"add", "append", "extend", "update", "discard", "remove", "clear", "pop"}


def edits_of(source: bytes) -> list[Edit]:
    """Return all small changes of a Python source.

    Sentences, docstrings, annotations and names are left alone.

    Args:
        source: the file.
    """
    maker = _PythonEdits(source)
    maker.visit(ast.parse(source))
    return sorted(maker.found, key=lambda edit: (edit.begin, edit.end))


class _PythonEdits(ast.NodeVisitor):
    """Collects the edits of one source; offsets are of bytes, as the tree's columns are."""

    def __init__(self, source: bytes) -> None:
        self.found: list[Edit] = []
        self._source = source
        self._functions: list[str] = []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions.append(node.name)
        for child in [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]:
            self.visit(child)
        self._functions.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._functions.append(node.name)
        for child in node.body:
            self.visit(child)
        self._functions.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node.body[-1], ast.Raise):
            self._replace(Kind.GUARD, node.test, b"False")
        elif isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
            self._replace(Kind.COMPARISON, node.test, b"not (" + self._text(node.test) + b")")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        # What is raised are sentences and their values; that it is raised is the guard's.
        self._replace(Kind.GUARD, node, b"pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        # An assertion tells the type checker what is so; it refuses nothing.
        pass

    def visit_Compare(self, node: ast.Compare) -> None:
        values = [node.left, *node.comparators]
        for left, right in pairwise(values):
            self._operator(left, right)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if _is_union(node):
            return
        self._operator(node.left, node.right)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(Kind.STORE, node, b"pass")
        self._operator(node.target, node.value)
        self.visit(node.value)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word, other = (b"and", b"or") if isinstance(node.op, ast.And) else (b"or", b"and")
        for left, right in pairwise(node.values):
            begin, end = self._end(left), self._begin(right)
            self._add(Kind.BOOLEAN, begin, end, self._source[begin:end].replace(word, other, 1))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(Kind.BOOLEAN, node, self._text(node.operand))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(Kind.CONSTANT, node, b"False" if value else b"True")
        elif isinstance(value, int | float):
            self._replace(Kind.CONSTANT, node, b"(" + self._text(node) + b" + 1)")
            if value:
                self._replace(Kind.CONSTANT, node, b"(" + self._text(node) + b" - 1)")
        elif isinstance(value, bytes) and value:
            self._replace(Kind.CONSTANT, node, repr(value[:-1] + b"?").encode())

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        # A sentence: nothing compares it.
        pass

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._replace(Kind.STORE, node, b"pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call):
            return
        name = _called(node.value)
        if name.startswith(GUARDS):
            self._replace(Kind.GUARD, node, b"pass")
        elif name in WRITES:
            self._replace(Kind.STORE, node, b"pass")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _called(node)
        if any(part in name for part in HASHING):
            self._parts(node)
        if name == "replace":
            for place, keyword in enumerate(node.keywords):
                before = node.keywords[place - 1].value if place else node.args[-1]
                self._add(Kind.STORE, self._end(before), self._end(keyword.value), b"")
        elif name[:1].isupper():
            self._swapped(Kind.EVENT_FIELD, node.args)
            self._swapped(Kind.EVENT_FIELD, [keyword.value for keyword in node.keywords])
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(Kind.CONTROL, node, b"break")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(Kind.CONTROL, node, b"continue")

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None:
            return
        if isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp):
            self._replace(Kind.RETURNED, value, b"not (" + self._text(value) + b")")
        elif not isinstance(value, ast.Constant):
            self._replace(Kind.RETURNED, value, b"None")
        if isinstance(value, ast.Tuple):
            self._swapped(Kind.RETURNED, value.elts)
        self.generic_visit(node)

    def _parts(self, node: ast.Call) -> None:
        """Leave out and exchange what a hash, a signature or an encoding is made of."""
        if len(node.args) > 1:
            self._left_out(node.args)
            self._swapped(Kind.HASH_FIELD, node.args)
        for argument in node.args:
            if isinstance(argument, ast.List | ast.Tuple):
                self._left_out(argument.elts)
                self._swapped(Kind.HASH_FIELD, argument.elts)
            parts = _added(argument)
            if len(parts) > 1:
                self._left_out(parts)
                self._swapped(Kind.HASH_FIELD, parts)

    def _left_out(self, values: list[ast.expr]) -> None:
        for place, value in enumerate(values):
            if len(values) < 2:
                return
            begin, end = self._begin(value), self._end(value)
            if place + 1 < len(values):
                end = self._begin(values[place + 1])
            else:
                begin = self._end(values[place - 1])
            self._add(Kind.HASH_FIELD, begin, end, b"")

    def _swapped(self, kind: Kind, values: list[ast.expr]) -> None:
        for one, other in pairwise(values):
            gap = self._source[self._end(one) : self._begin(other)]
            text = self._text(other) + gap + self._text(one)
            self._add(kind, self._begin(one), self._end(other), text)

    def _operator(self, left: ast.expr, right: ast.expr) -> None:
        found = operator_between(self._source, self._end(left), self._begin(right))
        if found is None:
            return
        begin, end, operator = found
        for changes, kind in CHANGES:
            if operator in changes:
                self._add(kind, begin, end, changes[operator])

    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> bytes:
        return self._source[self._begin(node) : self._end(node)]

    def _replace(self, kind: Kind, node: ast.expr | ast.stmt, text: bytes) -> None:
        self._add(kind, self._begin(node), self._end(node), text)

    def _add(self, kind: Kind, begin: int, end: int, text: bytes) -> None:
        line = self._source.count(b"\n", 0, begin) + 1
        self.found.append(Edit(kind, line, ".".join(self._functions), begin, end, text))


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _added(node: ast.expr) -> list[ast.expr]:
    """Return the parts of a sum: what is joined to be hashed."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_added(node.left), node.right]
    return [node]


def _is_union(node: ast.expr) -> bool:
    """Say whether this is a union of types, whose names begin with a capital."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr) and _is_union(node.left)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return str(name)[:1].isupper() and not str(name).isupper()
