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
        return source[: self.start] + self.text + source[self.end :]

    def diff(self, source: bytes) -> tuple[str, str]:
        """Return the line that changes, as it was and as it is; swapped lines all of them."""
        begin = self.line - 1
        swapped = source.count(b"\n", self.start, self.end) if self.kind == "order" else 0
        was, now = (
            " ; ".join(line.strip().decode() for line in text.splitlines()[begin:][: swapped + 1])
            for text in (source, self.apply(source))
        )
        return was, now


class Source:
    """A file, and where its nodes are in it."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._begins = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]

    def span(self, node: ast.expr | ast.stmt, last: ast.stmt | None = None) -> tuple[int, int]:
        """Return where the bytes of a node begin and end, or those up to another one."""
        end = last or node
        assert end.end_lineno is not None
        assert end.end_col_offset is not None
        start = self._begins[node.lineno - 1] + node.col_offset
        return start, self._begins[end.end_lineno - 1] + end.end_col_offset


Node = ast.AST | list[ast.stmt]
"""A block of statements counts as a node."""


@dataclass(frozen=True)
class Place:
    """A node, and what it stands in."""

    node: Node
    function: str
    in_function: bool
    statement: ast.stmt | None


def walk(above: Place) -> Iterator[Place]:
    """Yield each node that may be changed, from the top down."""
    node, function, in_function = above.node, above.function, above.in_function
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".removeprefix(".")
        in_function = not isinstance(node, ast.ClassDef)
    statement = node if isinstance(node, ast.stmt) else above.statement
    yield Place(node, function, in_function, statement)
    for child in children(node):
        yield from walk(Place(child, function, in_function, statement))


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


def changes(place: Place, source: Source) -> Iterator[tuple[str, ast.stmt | None, int, int, bytes]]:
    """Yield the changes of a node.

    Each is a kind, the statement that is reached if the place is, where the bytes begin and end
    that are replaced, and by what.
    """
    node, reached = place.node, place.statement
    match node:
        case ast.Compare(left=left, ops=operators, comparators=others):
            operands = itertools.pairwise([left, *others])
            for (before, after), operator in zip(operands, operators, strict=True):
                old, new = SWAPPED[type(operator)]
                words = old.replace(" ", "[ \t]+").encode()
                gap = source.span(before)[1], source.span(after)[0]
                pattern = re.compile(b"%b(%b)" % (BEFORE_OPERATOR, words))
                if found := pattern.match(source.text, *gap):
                    yield "comparison", reached, *found.span(1), new.encode()
        case ast.Constant(value=number) if type(number) is int:
            for other in (number + 1, number - 1):
                yield "bound", reached, *source.span(node), b"%d" % other
        case ast.If(test=test) if ast.unparse(test) != "TYPE_CHECKING":
            for constant in (b"True", b"False"):
                yield "if", reached, *source.span(test), constant
        case ast.Expr(value=ast.Await(value=awaited)):
            (start, _), (inner, _) = source.span(node), source.span(awaited)
            yield "await", reached, start, inner, b""
        case list() if place.in_function:
            in_init = place.function.endswith("__init__")  # nobody has the object yet
            for first, second in itertools.pairwise(node):
                if order_shows(first, second, assigned_in_silence=in_init):
                    start, middle = source.span(first)
                    begins, end = source.span(second)
                    between = source.text[middle:begins]
                    if b"#" not in between and b";" not in between:
                        swapped = source.text[begins:end] + between + source.text[start:middle]
                        yield "order", first, start, end, swapped
    dropped = cleanup(node)
    if not all(isinstance(statement, ast.Pass) for statement in dropped):
        yield "cleanup", dropped[0], *source.span(dropped[0], dropped[-1]), b"pass"


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


# Whether the order of two statements can be seen.

DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
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
    return isinstance(statement, (*DEFINING, ast.Global, ast.Nonlocal, ast.Pass))


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
    targets = one.targets if isinstance(one, ast.Assign) else [one.target]
    parts = (
        part
        for target in targets
        for part in (target.elts if isinstance(target, ast.Tuple) else [target])
    )
    text = ast.unparse(other)
    return not any(ast.unparse(part) in text for part in parts)


def is_quiet(statement: ast.stmt) -> bool:
    nodes = list(ast.walk(statement))
    called = {
        getattr(node.func, "id", getattr(node.func, "attr", ""))
        for node in nodes
        if isinstance(node, ast.Call)
    }
    loud = any(isinstance(node, (*SUSPENDING, ast.NamedExpr)) for node in nodes)
    return called <= QUIET and not loud


# All of them, and some.


def own_lines(statement: ast.stmt | None) -> range:
    """Return the lines of a statement up to the first statement in it."""
    if statement is None:
        return range(0)
    below = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
    end = below[0].lineno if below else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def places(file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file, some of which may be no Python (`compiles`)."""
    within = Source(source)
    top = Place(ast.parse(source).body, "", in_function=False, statement=None)
    return [
        Mutant(file, place.function, line, kind, start, end, text, own_lines(statement))
        for place in walk(top)
        for kind, statement, start, end, text in changes(place, within)
        for line in [source.count(b"\n", 0, start) + 1]
    ]


def compiles(source: bytes) -> bool:
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
