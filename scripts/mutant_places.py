"""The places where a file may be changed, of six kinds, and how some of them are drawn.

Not changed are documents, names of types, format strings (Python 3.11 does not say where their
parts are), and orders of two statements of which the second needs the first to run at all.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import random
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A change of one place."""

    file: str
    function: str
    line: int
    kind: str
    start: int
    end: int
    """The bytes of the file that are replaced."""
    text: bytes
    lines: range
    """Those of its statement, without what is below it: one is reached if the others are."""

    def own_lines(self) -> set[int]:
        """Return the lines that tell whether a test reaches the place."""
        return {self.line, *self.lines}

    def apply(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.text + source[self.end :]

    def diff(self, source: bytes) -> tuple[str, str]:
        """Return the first line that changes, as it was and as it is; swapped lines both."""
        was = source.splitlines()
        now = self.apply(source).splitlines()
        same = 0
        while same < min(len(was), len(now)) and was[same] == now[same]:
            same += 1
        if self.kind == "order":
            begin = source[: self.start].count(b"\n")
            until = begin + source[self.start : self.end].count(b"\n") + 1
            return _one_line(was[begin:until]), _one_line(now[begin:until])
        return _one_line(was[same : same + 1]), _one_line(now[same : same + 1])


def _one_line(lines: Sequence[bytes]) -> str:
    return " ; ".join(line.strip().decode() for line in lines)


SWAPPED = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}

CLOSES = frozenset({"close", "aclose", "__exit__", "__aexit__", "unlink", "cancel"})
"""Statements that call these are cleanup."""


class _Places(ast.NodeVisitor):
    """All mutants of one file."""

    def __init__(self, file: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._file = file
        self._source = source
        self._begins = [0]
        for line in source.splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))
        self._names: list[str] = []
        self._in_function = 0
        self._lines = range(0)
        self._block(ast.parse(source).body)

    def _at(self, line: int, column: int) -> int:
        return self._begins[line - 1] + column

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(
            node.end_lineno, node.end_col_offset
        )

    def _add(self, kind: str, line: int, start: int, end: int, text: bytes) -> None:
        function = ".".join(self._names)
        self.found.append(Mutant(self._file, function, line, kind, start, end, text, self._lines))

    # What is not changed: names of types, and what only a type checker reads.

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._names.append(node.name)
        self._in_function += 1
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        if node.name in CLOSES and node.name.startswith("__"):
            self._drop("cleanup", node.body)
        self._block(node.body)
        self._in_function -= 1
        self._names.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        within, self._in_function = self._in_function, 0
        self._block(node.body)
        self._in_function = within
        self._names.pop()

    # What is.

    def visit_Compare(self, node: ast.Compare) -> None:
        before = node.left
        for operator, after in zip(node.ops, node.comparators, strict=True):
            old, new = SWAPPED[type(operator)]
            start = self._span(before)[1]
            between = self._source[start : self._span(after)[0]]
            found = _operator(between, old)
            if found is not None:
                at, end = start + found[0], start + found[1]
                line = self._source[:at].count(b"\n") + 1
                self._add("comparison", line, at, end, new.encode())
            before = after
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            for other in (node.value + 1, node.value - 1):
                self._add("bound", node.lineno, *self._span(node), str(other).encode())

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass  # Python 3.11 does not say where its parts are

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            for constant in (b"True", b"False"):
                self._add("if", node.test.lineno, *self._span(node.test), constant)
        self.visit(node.test)
        self._block(node.body)
        self._block(node.orelse)

    def visit_Expr(self, node: ast.Expr) -> None:
        start, _ = self._span(node)
        called = node.value
        if isinstance(called, ast.Await):
            inner = self._span(called.value)[0]
            self._add("await", node.lineno, start, inner, b"")
            called = called.value
        if isinstance(called, ast.Call) and _name(called.func) in CLOSES:
            self._drop("cleanup", [node])
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        if node.finalbody:
            self._drop("cleanup", node.finalbody)
        self._block(node.body)
        for handler in node.handlers:
            self._block(handler.body)
        self._block(node.orelse)
        self._block(node.finalbody)

    def visit_TryStar(self, node: ast.TryStar) -> None:
        self.visit_Try(node)  # type: ignore[arg-type]

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._block(node.body)
        self._block(node.orelse)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self.visit_For(node)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._block(node.body)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit(item.context_expr)
        self._block(node.body)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        self.visit_With(node)

    def visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self.visit(node.guard)
        self._block(node.body)

    def _block(self, statements: list[ast.stmt]) -> None:
        if self._in_function:
            within = self._lines
            for first, second in itertools.pairwise(statements):
                self._lines = _own_lines(first)
                self._swap(first, second)
            self._lines = within
        for statement in statements:
            within, self._lines = self._lines, _own_lines(statement)
            self.visit(statement)
            self._lines = within

    def _drop(self, kind: str, statements: list[ast.stmt]) -> None:
        """Replace statements by `pass`, at the line where they begin."""
        if all(isinstance(statement, ast.Pass) for statement in statements):
            return
        start, end = self._span(statements[0])[0], self._span(statements[-1])[1]
        within, self._lines = self._lines, _own_lines(statements[0])
        self._add(kind, statements[0].lineno, start, end, b"pass")
        self._lines = within

    def _swap(self, first: ast.stmt, second: ast.stmt) -> None:
        if not (_moves(first) and _moves(second)) or first.lineno == second.lineno:
            return
        bound = _bound_names(first)
        if bound & _names(second) or not _shows(first, second):
            return  # it could not run, or it is the same
        if self._names[-1] == "__init__" and _fills(first, second):
            return  # nobody has the object yet
        (start, middle), (begins, end) = self._span(first), self._span(second)
        between = self._source[middle:begins]
        if b"#" in between or b";" in between:
            return
        text = self._source[begins:end] + between + self._source[start:middle]
        self._add("order", first.lineno, start, end, text)


def _operator(between: bytes, old: str) -> tuple[int, int] | None:
    """Return where an operator is in what stands between two operands."""
    words = old.split()
    tokens: list[tokenize.TokenInfo] = []
    text = between.decode()
    with contextlib.suppress(tokenize.TokenError, IndentationError):
        tokens.extend(tokenize.generate_tokens(io.StringIO(f"({text}").readline))
    strings = [token.string for token in tokens]
    for number in range(len(strings)):
        if strings[number : number + len(words)] == words:
            first, last = tokens[number], tokens[number + len(words) - 1]
            if first.start[0] != last.end[0]:
                return None
            before = "".join(f"({text}".splitlines(keepends=True)[: first.start[0] - 1])
            offset = len(before) - 1
            return (
                len(f"({text}"[1 : 1 + offset + first.start[1]].encode()),
                len(f"({text}"[1 : 1 + offset + last.end[1]].encode()),
            )
    return None


def _own_lines(statement: ast.stmt) -> range:
    below = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
    end = below[0].lineno if below else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else ""


def _moves(statement: ast.stmt) -> bool:
    """Whether a statement may change its place: no docstring, no definition, no import."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return False
    fixed = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return not isinstance(statement, (*fixed, ast.Global, ast.Nonlocal, ast.Pass))


QUIET = frozenset(
    [
        "bool",
        "Counter",
        "defaultdict",
        "deque",
        "dict",
        "Event",
        "float",
        "frozenset",
        "get",
        "int",
        "isinstance",
        "len",
        "list",
        "max",
        "min",
        "partial",
        "ParkingLot",
        "set",
        "str",
        "tuple",
    ]
)
"""To call these changes nothing, and takes nothing that an assignment changes."""


def _shows(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether the order of two statements may be seen: both act, or one acts and one leaves.

    Two guards that exclude each other, and a value made for nothing before a guard, change nothing.
    """
    if _leaves(first) or _leaves(second):
        return any(_acts(one) and not _leaves(one) for one in (first, second))
    return _acts(first) and _acts(second) and not _independent(first, second)


def _fills(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether both only give an object attributes, and neither takes the other's."""
    both = ((first, second), (second, first))
    return all(
        isinstance(one, (ast.Assign, ast.AnnAssign))
        and not any(target in ast.unparse(other) for target in _targets(one))
        for one, other in both
    )


LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def _leaves(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If) and not statement.orelse:
        return _leaves(statement.body[-1])
    return isinstance(statement, LEAVING)


def _acts(statement: ast.stmt) -> bool:
    """Whether it does more than to give names to values."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)):
            return True
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return True
    return False


def _independent(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether both only assign, and neither what the other takes: their order changes nothing."""
    return all(
        _only_assigns(one) and not any(target in ast.unparse(other) for target in _targets(one))
        for one, other in ((first, second), (second, first))
    )


def _only_assigns(statement: ast.stmt) -> bool:
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return False
    acting = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    nodes = list(ast.walk(statement))
    called = {_called(node.func) for node in nodes if isinstance(node, ast.Call)}
    return called <= QUIET and not any(isinstance(node, acting) for node in nodes)


def _called(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else _name(function)


def _targets(statement: ast.stmt) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [ast.unparse(one) for target in targets for one in _parts(target)]


def _parts(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, ast.Tuple) else [target]


def _bound_names(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _names(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def places(file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file, some of which may be no Python (`compiles`)."""
    return _Places(file, source).found


def compiles(source: bytes) -> bool:
    """Tell whether a file is Python."""
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def draw(sources: dict[str, bytes], seed: int) -> Iterator[Mutant]:
    """Draw mutants for ever, none twice: a file by its lines, one of its kinds, one of those."""
    rolled = random.Random(seed)  # noqa: S311 - no key
    files = sorted(sources)
    weights = [sources[file].count(b"\n") for file in files]
    left: dict[str, dict[str, list[Mutant]]] = {}
    while sum(weights):
        (file,) = rolled.choices(files, weights)
        if file not in left:
            left[file] = {}
            for mutant in places(file, sources[file]):
                left[file].setdefault(mutant.kind, []).append(mutant)
        kinds = sorted(kind for kind, mutants in left[file].items() if mutants)
        if not kinds:
            weights[files.index(file)] = 0
            continue
        mutants = left[file][rolled.choice(kinds)]
        mutant = mutants.pop(rolled.randrange(len(mutants)))
        if compiles(mutant.apply(sources[file])):
            yield mutant
