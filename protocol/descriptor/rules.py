"""The rules of a descriptor that concern more than one of its fields.

Each is a generator over a document whose fields may still have any type: the shape is checked
elsewhere, and fields of a wrong shape are skipped here. At the end are the warnings for a person
about a valid descriptor (`near_misses`), which are never a reason to refuse it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from protocol.args_schema import ops_problems
from protocol.descriptor.model import HOOK_OP, InputForm, Instances, Kind, Lifecycle, Transport
from protocol.descriptor.shape import DESCRIPTOR, HOOK, SUPERVISION, TRANSPORT, URL
from protocol.dialects.exec import input_names, no_holes, read_template
from protocol.dialects.registry import DIALECTS
from protocol.frames import encode
from protocol.problem import Problem, described, did_you_mean, nearest, quoted, step
from protocol.shape import Fields

DEFAULT_PROTOCOL = Transport().protocol
_DEFAULT_INSTANCES = Instances()
_END_TYPES = {int, float, str}  # not bool, which Python takes for 0 or 1


def problems(document: dict[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    DESCRIPTOR(document, "", found)
    transport = document.get("transport")
    if isinstance(transport, dict):
        found += _reachability(transport)
        found += _dialect(transport)
        found += _nested_references(transport)
        if transport.get("type") == "http":
            found += _service(transport, document.get("supervision"))
        if transport.get("protocol") == "exec":
            found += _exec(transport, document.get("inputs", {}))
    if isinstance(document.get("hook"), dict):
        found += _hook(document, document["hook"])
    supervision = document.get("supervision")
    if isinstance(supervision, dict):
        found += _dependencies(document.get("name"), supervision.get("depends_on"))
        found += _restart_rules(supervision)
        found += _instances(transport, supervision.get("instances"))
        if isinstance(transport, dict):
            found += _warm(transport, supervision.get("warm"))
    for field in ("inputs", "outputs"):
        if isinstance(document.get(field), dict):
            found += ops_problems(document[field], f"/{field}")
    return sorted(found)


def _reachability(transport: dict[str, Any]) -> Iterator[Problem]:
    at = "/transport"
    match transport.get("type"):
        case "stdio" if "command" not in transport:
            yield TRANSPORT.missing("command", transport, at)
        case "stdio":
            # An empty argument is an argument; an empty program is a slip.
            for field in ("command", "prepare"):
                words = transport.get(field)
                if isinstance(words, list) and words[:1] == [""]:
                    yield Problem(f"{at}/{field}/0", "is empty, must name the program to run")
        case "http" if "url" not in transport:
            yield TRANSPORT.missing("url", transport, at)
        case "http":
            url = transport["url"]
            if isinstance(url, str) and URL.search(url) is None:
                yield Problem(
                    f"{at}/url",
                    f"is {_shown(url)}, must be an address such as "
                    '"https://tools.example/modules/dice", without a user, a password, a query '
                    "and a fragment: what is secret goes into headers",
                )


def _shown(url: str) -> str:
    # What stands before an @, or after a ?, may be a password.
    return "hidden here" if re.search("[@?#]", url) else quoted(url)


_SENT_ANYWAY = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "expect"),
        *("host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers that the host itself sends, or never sends."""

_OF_PROCESSES = "a service is not a process of this machine"


def _service(transport: dict[str, Any], supervision: Any) -> Iterator[Problem]:
    """Refuse what a service cannot have: fields of a process."""
    protocol, lifecycle = transport.get("protocol"), transport.get("lifecycle")
    if protocol in DIALECTS and protocol != DEFAULT_PROTOCOL:
        words = f"is {quoted(protocol)}, must be {quoted(DEFAULT_PROTOCOL)}: {_OF_PROCESSES}"
        yield Problem("/transport/protocol", words)
    elif lifecycle == Lifecycle.PER_INVOCATION:
        words = f"is {quoted(lifecycle)}, must be {quoted(Lifecycle.PERSISTENT)}: {_OF_PROCESSES}"
        yield Problem("/transport/lifecycle", words)
    if isinstance(transport.get("prepare"), list) and transport["prepare"]:
        yield Problem("/transport/prepare", f"must be left out: {_OF_PROCESSES}")
    headers = transport.get("headers")
    for name in headers if isinstance(headers, dict) else ():
        if name.lower() in _SENT_ANYWAY:
            words = f"{quoted(name)} must be left out: it is not for a descriptor to say"
            yield Problem("/transport/headers", words)
    if not isinstance(supervision, dict):
        return
    limits, instances = supervision.get("limits"), supervision.get("instances")
    for field in ("memory_bytes", "open_files", "processes", "cpu_s"):
        if isinstance(limits, dict) and type(limits.get(field)) in {int, float}:
            words = f"is {described(limits[field])}, must be null: {_OF_PROCESSES}"
            yield Problem(f"/supervision/limits/{field}", words)
    if supervision.get("watch") is True:
        yield Problem("/supervision/watch", f"is true, must be false: {_OF_PROCESSES}")
    yield from _default_instances(instances, _OF_PROCESSES)


def _dialect(transport: dict[str, Any]) -> Iterator[Problem]:
    protocol = transport.get("protocol", DEFAULT_PROTOCOL)
    dialect = DIALECTS.get(protocol) if isinstance(protocol, str) else None
    lifecycle = transport.get("lifecycle")
    if (
        dialect is not None
        and lifecycle in tuple(Lifecycle)
        and lifecycle not in dialect.lifecycles
    ):
        only = dialect.lifecycles[0]
        runs = {
            Lifecycle.PERSISTENT: "speaks with one process for many requests",
            Lifecycle.PER_INVOCATION: "runs a process per invocation",
        }
        yield Problem(
            "/transport/lifecycle",
            f"is {quoted(lifecycle)}, must be {quoted(only)}: {protocol} {runs[only]}",
        )
    # Only a Spec 001 tool may be one that knows nothing of the section 6 envelope.
    if protocol != "narratoria" and transport.get("input") == InputForm.FLAT:
        yield Problem(
            "/transport/input",
            'is "flat", must be "envelope": only narratoria tools read flat args',
        )


_NESTED = re.compile(r"(?<!\$)\$\{[A-Za-z_][A-Za-z0-9_]*:-[^}]*\$\{")


def _nested_references(transport: dict[str, Any]) -> Iterator[Problem]:
    if transport.get("expand", transport.get("protocol") == "mcp") is not True:
        return
    for field in ("command", "prepare", "cwd", "env", "env_file"):
        at, value = f"/transport/{field}", transport.get(field)
        if not isinstance(value, dict | list | str):
            continue
        members = value if isinstance(value, dict) else dict(enumerate(value))
        for key, one in [("", value)] if isinstance(value, str) else members.items():
            if isinstance(one, str) and _NESTED.search(one):
                words = "has a ${ within the default of another: a default must be plain text"
                yield Problem(at if one is value else step(at, key), words)


def _exec(transport: dict[str, Any], inputs: Any) -> Iterator[Problem]:
    given = transport.get("exec")
    ops = given.get("ops") if isinstance(given, dict) else None
    if "exec" not in transport:
        example = '{"ops":{"count":{"args":["-w"],"stdin":"{text}"}}}'
        unknown = [one for one in transport if one not in TRANSPORT.fields]
        hint = did_you_mean("exec", unknown).replace("did you mean", "is it meant by")
        yield Problem("/transport/exec", f"is missing, must be an object such as {example}{hint}")
    if not isinstance(ops, dict) or not isinstance(inputs, dict):
        return
    if not ops:
        yield Problem("/transport/exec/ops", "is empty, must have an op")
    for op in inputs:
        if op not in ops:
            words = f"is not an op of /transport/exec/ops{did_you_mean(op, ops)}"
            yield Problem(step("/inputs", op), words)
    for op, said in ops.items():
        if isinstance(said, dict):
            for one in no_holes(said, input_names(inputs.get(op))):
                if one.is_slip:
                    words = f"has {one.written}, which is not an input of this op{one.meant}"
                    yield Problem(
                        step("/transport/exec/ops", op) + one.pointer,
                        f"{words}; write {{{one.written}}} for the text itself",
                    )


def _hook(document: dict[str, Any], hook: dict[str, Any]) -> Iterator[Problem]:
    kind = document.get("kind")
    if kind in tuple(Kind) and kind != Kind.HOOK:
        yield Problem("/hook", f'is for the kind "hook", must be left out of a {quoted(kind)}')
        return
    if not any(hook.get(field, []) != [] for field in ("observe", "gate")):
        yield Problem(
            "/hook",
            'neither observes nor gates anything, must have "observe" such as ["module:*"] '
            'or "gate" such as ["tool:pre"]',
        )
    inputs = document.get("inputs")
    if isinstance(inputs, dict) and HOOK_OP not in inputs:
        yield Problem(
            f"/inputs/{HOOK_OP}",
            "is missing, must be the JSON Schema of the op that a hook is called with",
        )


def _dependencies(name: Any, depends_on: Any) -> Iterator[Problem]:
    if isinstance(depends_on, list) and isinstance(name, str):
        for index, other in enumerate(depends_on):
            if other == name:
                yield Problem(
                    f"/supervision/depends_on/{index}",
                    f"is {quoted(name)}, must be another module: none can wait for itself",
                )


def _restart_rules(supervision: dict[str, Any]) -> Iterator[Problem]:
    wanted, never = supervision.get("restart_on"), supervision.get("never_on")
    if not isinstance(wanted, list) or not isinstance(never, list):
        return
    places = {
        end: index for index, end in reversed(list(enumerate(wanted))) if type(end) in _END_TYPES
    }
    for index, end in enumerate(never):
        if type(end) in _END_TYPES and end in places:
            yield Problem(
                f"/supervision/never_on/{index}",
                f"is {described(end)}, which /supervision/restart_on/{places[end]} is too: "
                "such an end is either restarted or never",
            )


def _lifecycle(transport: dict[str, Any]) -> Any:
    dialect = DIALECTS.get(str(transport.get("protocol", DEFAULT_PROTOCOL)))
    usual = None if dialect is None else dialect.lifecycles[0]
    return transport.get("lifecycle", usual)


def _warm(transport: dict[str, Any], warm: Any) -> Iterator[Problem]:
    if type(warm) not in {int, float} or warm < 1:
        return
    dialect = DIALECTS.get(str(transport.get("protocol", DEFAULT_PROTOCOL)))
    if _lifecycle(transport) == Lifecycle.PERSISTENT:
        why = "only a module with a process per invocation keeps some waiting"
    elif dialect is not None and not dialect.keeps_warm:
        why = "the arguments of a command are not known before its request"
    else:
        return
    yield Problem("/supervision/warm", f"is {warm}, must be 0: {why}")


def _instances(transport: Any, instances: Any) -> Iterator[Problem]:
    if not isinstance(instances, dict):
        return
    least = instances.get("min", _DEFAULT_INSTANCES.min)
    most = instances.get("max", _DEFAULT_INSTANCES.max)
    if type(least) in {int, float} and type(most) in {int, float} and least > most:
        default = "" if "max" in instances else " (the default)"
        yield Problem(
            "/supervision/instances/min", f"is {least}, must be at most max, {most}{default}"
        )
    if isinstance(transport, dict) and _lifecycle(transport) == Lifecycle.PER_INVOCATION:
        why = "a module that runs a process per invocation has as many as its concurrency says"
        yield from _default_instances(instances, why)


def _default_instances(instances: Any, why: str) -> Iterator[Problem]:
    defaults = msgspec.structs.asdict(_DEFAULT_INSTANCES)
    for field, value in instances.items() if isinstance(instances, dict) else ():
        if type(value) in {int, float} and field in defaults and value != defaults[field]:
            yield Problem(
                f"/supervision/instances/{field}",
                f"is {described(value)}, must be {described(defaults[field])}: {why}",
            )


# Nearer than in `supervision`, where an unknown key is wrong anyway: "comment" is no "command".
_CUTOFF = 0.8

_HOMES = (("", DESCRIPTOR), ("/transport", TRANSPORT), ("/supervision", SUPERVISION))
_HOMES_OF_HOOKS = (*_HOMES, ("/hook", HOOK))


def near_misses(document: dict[str, Any]) -> list[Problem]:
    """Return warnings for ignored fields that were probably meant, sorted by pointer.

    Unknown fields are tolerated at the top level of a descriptor and in `transport`.
    """
    homes = _HOMES_OF_HOOKS if document.get("kind") == Kind.HOOK else _HOMES
    found = list(_misses(document, "", DESCRIPTOR, homes))
    transport = document.get("transport")
    if isinstance(transport, dict):
        found += _misses(transport, "/transport", TRANSPORT, homes)
        if transport.get("protocol") == "exec":
            ops, inputs = transport["exec"]["ops"], document.get("inputs", {})
            found += _doubtful_templates(ops, inputs)
    return sorted(found)


def _doubtful_templates(ops: dict[str, Any], inputs: dict[str, Any]) -> Iterator[Problem]:
    """Warn of a word that looks like a hole, and of a boolean as an argument by itself."""
    for op, said in ops.items():
        of_op = step("/transport/exec/ops", op)
        schema = inputs.get(op) or {}
        names = input_names(schema)
        for one in no_holes(said, names):
            name = one.written.strip("{?}").removesuffix(":json")
            add = encode({op: {"properties": {name: {}}}}).decode()
            words = f"{one.written} is passed as it stands: {step('/inputs', op)} has no {name}"
            words += f'; add "inputs": {add}, or write {{{one.written}}} for the text'
            yield Problem(of_op + one.pointer, words)
        for at, text in enumerate(said.get("args", ())):
            only = read_template(text, names).only
            of = None if only is None else schema["properties"][only.name]
            if only is not None and isinstance(of, dict) and of.get("type") == "boolean":
                words = f'passes the word "true" or "false"; for a flag, let {only.name} be '
                words += 'the flag itself: {"enum": ["--FLAG"]}, with "options": true in the op'
                yield Problem(f"{of_op}/args/{at}", words)


def _misses(
    value: dict[str, Any], at: str, known: Fields, homes: tuple[tuple[str, Fields], ...]
) -> Iterator[Problem]:
    absent = [field for field in known.fields if field not in value]
    for key in value:
        if key in known.fields:
            continue
        home = next((home for home, fields in homes if key in fields.fields), None)
        meant = nearest(key, absent, _CUTOFF)
        if home is not None:
            hint = f"did you mean '{step(home, key)}'?"
        elif meant is not None:
            hint = f"did you mean '{meant}'?"
        else:
            continue
        yield Problem(step(at, key), f"unknown field, ignored; {hint}")
