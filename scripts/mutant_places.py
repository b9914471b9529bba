"""The places where a file may be changed, of six kinds, and how some of them are drawn.

Not changed are documents, names of types, format strings (Python 3.11 does not say where their
parts are), and orders of two statements of which the second needs the first to run at all, or
whose order nobody can see.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections import defaultdict
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

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text + source[self.end :]

    def compiles(self, source: bytes) -> bool:
        try:
            compile(self.apply(source), "mutant", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
        return True

    def diff(self, source: bytes) -> tuple[str, str]:
        """Return the line that changes, as it was and as it is; swapped lines all of them."""
        begin = self.line - 1
        swapped = source.count(b"\n", self.start, self.end) if self.kind == "order" else 0
        was, now = (
            " ; ".join(line.strip().decode() for line in text.splitlines()[begin:][: swapped + 1])
            for text in (source, self.apply(source))
        )
        return was, now


Node = ast.AST | list[ast.stmt]
"""A block of statements counts as a node."""
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
BEFORE_OPERATOR = rb"(?:[\s()\\]|#.*+)*+"
CLOSES = frozenset({"close", "aclose", "__exit__", "__aexit__", "unlink", "cancel"})
"""Statements that call these are cleanup."""


class Places:
    """Finds all mutants of a file, some of which may be no Python (`Mutant.compiles`)."""

    def __init__(self, file: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._file, self._text = file, source
        self._begins = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
        self._function = ""
        self._statement: ast.stmt | None = None
        self._walk(ast.parse(source).body, in_function=False)

    def _walk(self, node: Node, *, in_function: bool) -> None:
        """Take each node that may be changed, from the top down."""
        above = self._function, self._statement
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._function = f"{self._function}.{node.name}".removeprefix(".")
            in_function = not isinstance(node, ast.ClassDef)
        if isinstance(node, ast.stmt):
            self._statement = node
        self._change(node, in_function=in_function)
        for child in children(node):
            self._walk(child, in_function=in_function)
        self._function, self._statement = above

    def _change(self, node: Node, *, in_function: bool) -> None:
        match node:
            case ast.Compare(left=left, ops=operators, comparators=others):
                operands = itertools.pairwise([left, *others])
                for (before, after), operator in zip(operands, operators, strict=True):
                    old, new = SWAPPED[type(operator)]
                    words = old.replace(" ", "[ \t]+").encode()
                    pattern = re.compile(b"%b(%b)" % (BEFORE_OPERATOR, words))
                    gap = self._span(before)[1], self._span(after)[0]
                    if found := pattern.match(self._text, *gap):
                        self._add("comparison", found.span(1), new.encode())
            case ast.Constant(value=number) if type(number) is int:
                for other in (number + 1, number - 1):
                    self._add("bound", self._span(node), b"%d" % other)
            case ast.If(test=test) if ast.unparse(test) != "TYPE_CHECKING":
                for constant in (b"True", b"False"):
                    self._add("if", self._span(test), constant)
            case ast.Expr(value=ast.Await(value=awaited)):
                self._add("await", (self._span(node)[0], self._span(awaited)[0]), b"")
            case list() if in_function:
                for first, second in itertools.pairwise(node):
                    self._swap(first, second)
        dropped = cleanup(node)
        if not all(isinstance(statement, ast.Pass) for statement in dropped):
            self._add("cleanup", self._span(dropped[0], dropped[-1]), b"pass", dropped[0])

    def _swap(self, first: ast.stmt, second: ast.stmt) -> None:
        nobody_has_it_yet = self._function.endswith("__init__")
        if order_shows(first, second, assigned_in_silence=nobody_has_it_yet):
            (start, middle), (begins, end) = self._span(first), self._span(second)
            between = self._text[middle:begins]
            if b"#" not in between and b";" not in between:
                swapped = self._text[begins:end] + between + self._text[start:middle]
                self._add("order", (start, end), swapped, first)

    def _span(self, node: ast.expr | ast.stmt, last: ast.stmt | None = None) -> tuple[int, int]:
        """Return where the bytes of a node begin and end, or those up to another one."""
        end = last or node
        assert end.end_lineno is not None
        assert end.end_col_offset is not None
        start = self._begins[node.lineno - 1] + node.col_offset
        return start, self._begins[end.end_lineno - 1] + end.end_col_offset

    def _add(
        self, kind: str, span: tuple[int, int], text: bytes, statement: ast.stmt | None = None
    ) -> None:
        """Add a mutant; the statement is the one that is reached if the place is."""
        line = self._text.count(b"\n", 0, span[0]) + 1
        lines = own_lines(statement or self._statement)
        self.found.append(Mutant(self._file, self._function, line, kind, *span, text, lines))


def children(node: Node) -> Sequence[Node]:
    """Return what stands in a node, but for what only a type checker or a reader of texts needs."""
    match node:
        case list():
            return node
        case ast.FunctionDef(args=args, body=body) | ast.AsyncFunctionDef(args=args, body=body):
            return [*args.defaults, *filter(None, args.kw_defaults), body]
        case ast.ClassDef(body=body):
            return [body]
        case ast.AnnAssign(value=value):
            return [value] if value is not None else []
        case ast.arg() | ast.JoinedStr() | ast.pattern():
            return []
    found: list[Node] = []
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            found.append(value)
        else:
            values = value if isinstance(value, list) else [value]
            found += [one for one in values if isinstance(one, ast.AST)]
    return found


def cleanup(node: Node) -> list[ast.stmt]:
    match node:
        case (
            ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)))
            | ast.Expr(value=ast.Await(value=ast.Call(func=ast.Attribute(attr=name))))
        ) as statement if name in CLOSES:
            return [statement]
        case ast.Try(finalbody=body) | ast.TryStar(finalbody=body):
            return body
        case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
            return body if name in CLOSES and name.startswith("__") else []
    return []


def own_lines(statement: ast.stmt | None) -> range:
    """Return the lines of a statement up to the first statement in it."""
    if statement is None:
        return range(0)
    below = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
    end = below[0].lineno if below else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


# Whether the order of two statements can be seen.

FIXED = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
    *(ast.Global, ast.Nonlocal, ast.Pass),
)
LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
SUSPENDING = (ast.Await, ast.Yield, ast.YieldFrom)
QUIET = (
    {"bool", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"}
    | {"Counter", "defaultdict", "deque", "Event", "partial", "ParkingLot"}
    | {"get", "isinstance", "len", "max", "min"}
)
"""To call these changes nothing, and takes nothing that an assignment changes."""


def order_shows(first: ast.stmt, second: ast.stmt, *, assigned_in_silence: bool) -> bool:
    """Tell whether the order may be seen: both act, or one acts and one leaves.

    Two guards that exclude each other, a value made for nothing before a guard, and assignments
    of which neither takes what the other assigns, change nothing.
    """
    both = (first, second)
    if any(is_fixed(one) for one in both) or first.lineno == second.lineno:
        return False
    names = [node for node in ast.walk(first) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    if any(isinstance(node, ast.Name) and node.id in bound for node in ast.walk(second)):
        return False  # it could not run
    if any(leaves(one) for one in both):
        return any(acts(one) and not leaves(one) for one in both)
    if (assigned_in_silence or all(map(is_quiet, both))) and (
        independent(first, second) and independent(second, first)
    ):
        return False
    return acts(first) and acts(second)


def is_fixed(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)  # a docstring
    return isinstance(statement, FIXED)


def leaves(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If) and not statement.orelse:
        return leaves(statement.body[-1])
    return isinstance(statement, LEAVING)


def acts(statement: ast.stmt) -> bool:
    """Tell whether it does more than to give names to values."""
    for node in ast.walk(statement):
        match node:
            case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.Expr(value=ast.Call()):
                return True
            case ast.Attribute(ctx=context) | ast.Subscript(ctx=context):
                if not isinstance(context, ast.Load):
                    return True
    return False


def independent(one: ast.stmt, other: ast.stmt) -> bool:
    """Tell whether a statement assigns, and nothing that the other takes."""
    if not isinstance(one, ast.Assign | ast.AnnAssign):
        return False
    text = ast.unparse(other)
    for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        if any(ast.unparse(part) in text for part in parts):
            return False
    return True


def is_quiet(statement: ast.stmt) -> bool:
    nodes = list(ast.walk(statement))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    loud = any(isinstance(node, (*SUSPENDING, ast.NamedExpr)) for node in nodes)
    return not loud and all(getattr(f, "id", getattr(f, "attr", "")) in QUIET for f in calls)


# All of them, and some.


def places(file: str, source: bytes) -> list[Mutant]:
    return Places(file, source).found


def draw(sources: dict[str, bytes], seed: int) -> Iterator[Mutant]:
    """Draw mutants for ever, none twice: a file by its lines, one of its kinds, one of those."""
    rolled = random.Random(seed)  # noqa: S311 - no key
    files = sorted(sources)
    weights = [sources[file].count(b"\n") for file in files]
    left: dict[str, dict[str, list[Mutant]]] = {}
    while sum(weights):
        (file,) = rolled.choices(files, weights)
        if file not in left:
            left[file] = defaultdict(list)
            for mutant in places(file, sources[file]):
                left[file][mutant.kind].append(mutant)
        if kinds := sorted(kind for kind, mutants in left[file].items() if mutants):
            mutants = left[file][rolled.choice(kinds)]
            mutant = mutants.pop(rolled.randrange(len(mutants)))
            if mutant.compiles(sources[file]):
                yield mutant
        else:
            weights[files.index(file)] = 0
