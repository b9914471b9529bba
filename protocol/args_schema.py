"""Args held to the JSON Schema of an op, with the fault in words; a `$schema` may name its draft.

`jsonschema_rs` decides, on the event loop, so three things are bounded: the schema (`MOST_PARTS`,
`DEPTH`, `PATTERN_BYTES`), the work for one request (`args_work`), and the search for words: a
failed `anyOf` collects each fault of each branch, 60 us for one, so that where there may be more
than `EXPLAINED`, only the fact is told.

A pattern is ECMA-262's, and searched for in linear time. Where the engine that does that refuses a
pattern of the schema, one that backtracks takes over, with a limit. What cannot be compiled is left
out (`left_out`), together with what would refuse more without it: by what is left, args that the
whole schema allows are allowed. The schemas of a descriptor may have nothing of the kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from protocol.args_work import EXPLAINED, HOLDING, MAPS, REFERENCES, ArgsWork
from protocol.problem import (
    EXCERPT_CHARS,
    POINTER_CHARS,
    Problem,
    described,
    did_you_mean,
    kind,
    literal,
    nearest,
    printable,
    quoted,
    shortened,
    step,
)

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MOST_PARTS = 4_000
"""Of a schema: keywords, properties, subschemas, and 16 members of an array, some 10 us each."""

DEPTH = 128
"""Of arrays and objects in a schema."""

PATTERN_BYTES = 1 << 22
"""Of all compiled patterns of a schema. `^.{1,5000}$` takes less, and 30 ms; to refuse a larger one
takes 70 ms."""

BACKTRACKS = 10_000

LEFT_OUT = 16
"""So many faults are left out of a schema; with more, the whole schema is."""

KEPT = 64
"""Compiled schemas of a module."""

MESSAGE_CHARS = 240
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

_MASK = "\ufffc"
"""Stands for the value in the library's words."""

_STRICTER = frozenset(("contains", "if", "not", "oneOf"))
"""If a part of these asks for less, they may refuse more."""

Path = list[str | int]


class ArgsValidator:
    """The ops of a module with the schemas of their args, compiled when they are first needed."""

    def __init__(
        self, inputs: dict[str, Any], left_out: Callable[[str, Problem], None] | None = None
    ) -> None:
        """`left_out` is told, with the op, of what args of that op are not held to."""
        self._inputs = inputs
        self._left_out = left_out
        self._compiled: dict[str, ArgsSchema] = {}

    @property
    def ops(self) -> Collection[str]:
        """The ops in the order of their declaration."""
        return self._inputs.keys()

    def fault(self, op: str, args: Any) -> Problem | None:
        """Return what is wrong with the args, if anything; raises `KeyError` for an unknown op."""
        compiled = self._compiled.get(op)
        return (self._compile(op) if compiled is None else compiled).fault(args)

    def _compile(self, op: str) -> ArgsSchema:
        compiled = ArgsSchema(self._inputs[op])
        if len(self._compiled) == KEPT:
            del self._compiled[next(iter(self._compiled))]
        self._compiled[op] = compiled
        if self._left_out is not None:
            for problem in compiled.left_out:
                self._left_out(op, problem)
        return compiled


class ArgsSchema:
    """The compiled schema of one op, which finds the fault in args."""

    def __init__(self, schema: Any) -> None:
        self.left_out: list[Problem] = []
        """The keywords that cannot be compiled; args are not held to them."""
        compiled = None
        while compiled is None:
            try:
                compiled = _compiled(schema)
            except ValueError as error:
                few = len(self.left_out) < LEFT_OUT
                for path, words in _faults(schema, error if few else ValueError("has more faults")):
                    problem = Problem(_pointer(path), printable(words, MESSAGE_CHARS))
                    self.left_out.append(problem)
                    schema = _lacking(schema, path)
        self._validator, backtracks = compiled
        self._schema = schema
        self._work = ArgsWork(schema, backtracks=backtracks)

    def fault(self, args: Any) -> Problem | None:
        """Return what is wrong with the args, the pointer starting from them, or None."""
        work = self._work.of(args)
        if isinstance(work, Problem):
            return work
        try:
            if self._validator.is_valid(args):
                return None
            if work > EXPLAINED and self._work.has_unions:
                return Problem("", "is not valid, and too large for its schema to say where")
            return explained(self._error(args, work), self._schema, args)
        except UnicodeEncodeError as error:  # half of a pair of surrogates
            return Problem("", f"cannot be validated: {type(error).__name__}")

    def _error(self, args: Any, work: int) -> ValidationError:
        """Return the most useful error, or of large args the first."""
        if work <= EXPLAINED:
            return _best([*self._validator.iter_errors(args)])
        try:
            self._validator.validate(args)
        except UnicodeEncodeError:
            raise
        except ValueError as error:
            return cast("ValidationError", error)
        raise AssertionError


def op_schemas(inputs: object) -> dict[str, Any] | None:
    """Return the `inputs` that a module described, if they are an object of what may be schemas.

    Module Protocol v1 does not say what `inputs` looks like, so anything else than a non-empty
    object of ops and schemas is no fault: args are then not validated.
    """
    if not isinstance(inputs, dict) or not inputs:
        return None
    return inputs if all(isinstance(one, dict | bool) for one in inputs.values()) else None


def ops_problems(ops: dict[str, Any], at: str) -> list[Problem]:
    """Return what is wrong with the schemas of a map of ops; `at` is the map's JSON pointer."""
    found = []
    for op, schema in ops.items():
        for one in ArgsSchema(schema).left_out:
            found.append(Problem(step(at, op) + one.pointer, one.message))  # noqa: PERF401
    return found


# Compiling a schema, without the keywords that the library refuses.


def _compiled(schema: Any) -> tuple[Validator, bool]:
    """Compile a schema, and tell whether its patterns may backtrack; raises `ValueError`."""
    # Not at the top: it takes 30 ms and 7 MB, and a daemon of modules without `inputs` has no need.
    from jsonschema_rs import FancyRegexOptions, RegexOptions, validator_for  # noqa: PLC0415

    patterns = _patterns(schema)
    sizes = PATTERN_BYTES // max(1, patterns), PATTERN_BYTES

    def compiled(engine: FancyRegexOptions | RegexOptions) -> Validator:
        return validator_for(
            schema, validate_formats=False, retriever=_refuse, mask=_MASK, pattern_options=engine
        )

    able = compiled(FancyRegexOptions(BACKTRACKS, *sizes))
    try:
        return (compiled(RegexOptions(*sizes)) if patterns else able), False
    except ValueError:
        return able, True


def _refuse(uri: str) -> Any:
    raise ValueError(uri)  # else it asks the network


def _patterns(schema: Any) -> int:
    """Return the count of patterns; raises `ValueError` for too large a schema."""
    if not isinstance(schema, dict | bool):
        words = "must be the JSON Schema of an op: an object, true or false"
        raise ValueError(f"is {kind(schema)}, {words}")  # noqa: TRY004
    layer: list[Any] = [schema]
    parts = depth = patterns = 0
    while layer:
        dicts = [one for one in layer if type(one) is dict]
        lists = [one for one in layer if type(one) is list]
        layer = [part for one in dicts for part in one.values()]
        layer += [part for one in lists for part in one if type(part) in (dict, list)]
        patterns += sum("pattern" in one for one in dicts)
        patterns += sum(len(one.get("patternProperties", ())) for one in dicts)
        parts += len(layer) + sum(map(len, lists)) // 16
        depth += 1
        if parts > MOST_PARTS or depth > DEPTH:
            words = "is nested too deeply to be checked"
            raise ValueError(words if depth > DEPTH else f"has more than {MOST_PARTS} parts")
    return patterns


def _faults(schema: Any, error: Any) -> Iterator[tuple[Path, str]]:
    """Yield the path of each part that cannot be compiled, and why not."""
    path: Path = [*getattr(error, "instance_path", ())]
    if path and error.kind.name == "format":  # of the keyword `pattern`, or of a name
        pattern = error.instance if path[-1] == "pattern" else path[-1]
        yield path, f"{described(pattern)} is not a regular expression that can be used here"
    elif path[-1:] == ["type"] or path[-2:-1] == ["type"]:
        value = error.instance
        hint = did_you_mean(value, TYPES) if isinstance(value, str) else ""
        yield path, f"is not a JSON Schema type; there are {', '.join(TYPES)}{hint}"
    elif path:
        yield path, explained(error, None, schema).message
    elif not hasattr(error, "kind"):
        yield [], str(error)
    elif "meta-schema" in error.message and isinstance(schema, dict):
        yield ["$schema"], f"{quoted(schema['$schema'])} is no known draft of JSON Schema"
    else:
        # The library says where a reference leads to, and not where it stands.
        found = [*_references(schema, [])]
        said = re.findall("'(.*?)[#']", error.message)
        for path, reference in [
            one for one in found if any(one[1].strip("#").endswith(word) for word in said)
        ] or found:
            elsewhere = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", reference)
            words = "is elsewhere, and nothing is fetched; put it under $defs"
            words = words if elsewhere else "leads to nothing in this schema"
            yield path, f"{quoted(reference)} {words}"
        if not found:
            yield [], f"cannot be compiled: {error.message}"


def _references(value: dict[str, Any] | list[Any], path: Path) -> Iterator[tuple[Path, str]]:
    for key, member in value.items() if isinstance(value, dict) else enumerate(value):
        if key in REFERENCES and isinstance(member, str):
            yield [*path, key], member
        elif isinstance(member, dict | list):
            yield from _references(member, [*path, key])


def _lacking(schema: Any, path: Path) -> Any:
    """Return a copy that allows more: without what is at a path, and what depends on that."""
    if not path or not isinstance(schema, dict):
        return True
    (key, *rest), value = path, schema[str(path[0])]
    copy = {name: one for name, one in schema.items() if not name.startswith("unevaluated")}
    if not rest or key in _STRICTER or key not in HOLDING:
        copy.pop(str(key), None)
    elif key in MAPS or isinstance(value, list):
        copy[str(key)] = inner = value.copy()
        at = rest[0] if isinstance(value, list) else str(rest[0])
        inner[at] = _lacking(inner[at], rest[1:])
        if key == "patternProperties" and not rest[1:]:
            del inner[at]
            copy.pop("additionalProperties", None)
    else:
        copy[str(key)] = _lacking(value, rest)
    return copy


# The words for a fault in args.


def _best(errors: list[ValidationError]) -> ValidationError:
    """Return the most useful error, as `jsonschema.exceptions.best_match` does."""
    best = max(errors, key=_relevance)
    while context := [*chain(*getattr(best.kind, "context", ()))]:
        first, *others = sorted(context, key=_relevance)
        if others and _relevance(first) == _relevance(others[0]):
            break
        best = first
    return best


def _relevance(error: ValidationError) -> tuple[Any, ...]:
    path = error.instance_path
    name = error.kind.name
    # Last, whether the value has the type that this schema is for.
    return -len(path), [*map(str, path)], name not in _WEAK, name == "required", name == "type"


def _member(value: Any, key: str | int) -> Any:
    return value[str(key) if isinstance(value, dict) else key]  # `"0"` comes as 0


def _pointer(path: Path) -> str:
    pointer = ""
    for key in path:
        pointer = step(pointer, key)
    return pointer


def explained(error: Any, schema: Any, value: Any) -> Problem:
    """Return the place and the words of an error; short however large the value is."""
    for key in error.instance_path:
        value = _member(value, key)
    of = error.kind.error if error.kind.name == "propertyNames" else error
    value = of.instance if of is not error else value
    around, keyword = schema, of.kind.name
    wanted = next(iter(of.kind.as_dict().values()), None)
    try:
        for keyword in error.schema_path:
            around, schema = schema, _member(schema, keyword)
            wanted = schema
    except (LookupError, TypeError):  # it is counted from an `$id`
        around = {}
    child, words = _words(of, keyword, wanted, around, value)
    path = error.instance_path if child is None else [*error.instance_path, child]
    # Only a machine makes a pointer this long; nobody reads it.
    return Problem(shortened(_pointer(path), POINTER_CHARS), printable(words, MESSAGE_CHARS))


def _words(
    error: Any, keyword: Any, wanted: Any, around: Any, value: Any
) -> tuple[str | None, str]:
    it, name = described(value), error.kind.name
    known = around.get("properties", {}) if isinstance(around, dict) else {}
    match name:
        case "type":
            names = [wanted] if isinstance(wanted, str) else wanted
            return None, f"{it} is not {' or '.join(_ARTICLES.get(one, one) for one in names)}"
        case "enum":
            texts = [one for one in wanted if isinstance(one, str)]
            hint = did_you_mean(value, texts) if isinstance(value, str) else ""
            listed = shortened(", ".join(map(literal, wanted[:20])), EXCERPT_CHARS * 2)
            return None, f"{it} is not one of {listed}{hint}"
        case "const":
            return None, f"{it} is not {literal(wanted)}"
        case "required":
            missing = error.kind.property
            given = nearest(missing, [one for one in value if one not in known])
            hint = "" if given is None else f"; it has {literal(given)}, is that meant?"
            return missing, f"is missing{hint}"
        case "additionalProperties" | "falseSchema" if keyword == "additionalProperties":
            unexpected = getattr(error.kind, "unexpected", value)
            unknown = next(one for one in unexpected if one not in known)
            return unknown, f"is not known{did_you_mean(unknown, known)}"
        case "falseSchema":
            return None, f"{it} is not allowed"
        case "not":
            return None, f"{it} should not be valid under {literal(wanted)}"
        case "pattern" if "backtracking" in error.message:
            return None, f"{it} takes too many steps to be matched with {literal(wanted)}"
        case "pattern":
            return None, f"{it} does not match {wanted!r}"
        case "oneOf" if [] in error.kind.context:
            return None, f"{it} is valid under more than one of the given schemas"
        case _ if name in _SAID:
            few = _SAID_OF.get(name[:3] + str(wanted))
            return None, f"{it} {few or _SAID[name]}"
    return None, error.message.replace(_MASK, it)


_ARTICLES = {one: f"an {one}" if one[0] in "aio" else f"a {one}" for one in TYPES if one != "null"}

_WEAK = ("anyOf", "oneOf")

_SAID = {
    "anyOf": "is not valid under any of the given schemas",
    "contains": "does not contain items matching the given schema",
    "maxItems": "is too long",
    "maxLength": "is too long",
    "maxProperties": "has too many properties",
    "minItems": "is too short",
    "minLength": "is too short",
    "minProperties": "does not have enough properties",
    "oneOf": "is not valid under any of the given schemas",
}
_SAID_OF = {"min1": "should be non-empty", "max0": "is expected to be empty"}
