"""Reading a descriptor: what is accepted, how it is completed, and what an error looks like."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from protocol.descriptor.loading import FETCH_S, MAX_PROBLEMS, parse_descriptor
from protocol.descriptor.model import (
    Descriptor,
    Drop,
    Gate,
    Hook,
    Kind,
    Lifecycle,
    OnFailure,
    Restart,
    StdoutPolicy,
    Supervision,
    Timeouts,
    Transport,
)
from protocol.transcript import descriptor_document
from tests.protocol.descriptor_documents import (
    COMPLETE,
    GATE,
    SMALL,
    SOURCE,
    changed,
    encoded,
    refusal,
    without,
)


def parsed(document: Any) -> Descriptor:
    return parse_descriptor(encoded(document), SOURCE)


def test_a_descriptor_of_the_base_format_alone_gets_every_default() -> None:
    data = encoded(SMALL)
    assert parse_descriptor(data, SOURCE) == Descriptor(
        name="dice",
        kind=Kind.TOOL,
        transport=Transport(command=("python3", "dice.py")),
        capabilities=("fs.read",),
        source=SOURCE,
        folder="/etc/stdiod/dice",
        digest=hashlib.sha256(data).hexdigest(),
    )


def test_the_defaults_are_those_of_the_documented_example() -> None:
    complete = parsed(COMPLETE)
    documented = changed("/depends_on", [], COMPLETE["supervision"])
    assert json.loads(msgspec.json.encode(Supervision())) == documented
    assert complete.supervision == Supervision(depends_on=("kv",))
    written = ("command", "env", "pass_env")
    assert complete.transport == Transport(
        **{key: getattr(complete.transport, key) for key in written}
    )


def mcp(*command: str, **supervision: Any) -> Supervision:
    transport = {"type": "stdio", "protocol": "mcp", "command": list(command or ("server",))}
    return parsed({**SMALL, "transport": transport, "supervision": supervision}).supervision


def test_a_server_of_mcp_has_defaults_of_its_own() -> None:
    timeouts = Timeouts(start_s=60, invoke_s=120, total_s=3600)
    expected = Supervision(concurrency=16, restart=Restart.ON_DEMAND, timeouts=timeouts)
    assert mcp() == expected


def test_what_a_descriptor_says_wins_over_the_defaults_of_its_protocol() -> None:
    own = {"start_s": 1, "invoke_s": 2, "total_s": 3}
    given = mcp("npx", "x", concurrency=1, restart="permanent", timeouts=own)
    assert given == Supervision(timeouts=Timeouts(**own))
    assert mcp("npx", "x", timeouts={"health_s": 9}).timeouts.start_s == FETCH_S
    assert mcp(timeouts={"invoke_s": 7200}).timeouts.total_s == 7200


@pytest.mark.parametrize(
    "command",
    [
        ("npx", "-y", "x"),
        ("/usr/bin/uvx", "x"),
        ("docker", "run", "x"),
        ("bunx", "x"),
        ("sh", "-c", "exec npx -y x"),
        ("env", "A=1", "uvx", "x"),
    ],
)
def test_a_command_that_may_download_its_program_has_longer_to_start(
    command: tuple[str, ...],
) -> None:
    assert mcp(*command).timeouts.start_s == FETCH_S
    spoken = parsed({**SMALL, "transport": {"type": "stdio", "command": list(command)}})
    assert spoken.supervision == Supervision()


@pytest.mark.parametrize("command", [("node", "npx"), ("sh", "-c", "exec ./npx-like"), ("npxx",)])
def test_another_command_has_not(command: tuple[str, ...]) -> None:
    assert mcp(*command).timeouts.start_s == 60


def test_everything_written_about_a_hook_is_kept() -> None:
    written = {
        "gate": ["tool:error", "tool:post"],
        "modules": ["db-*"],
        "priority": 3.0,
        "on_failure": "open",
        "timeout_s": 0.5,
        "queue": 7,
        "drop": "newest",
    }
    hook = parsed(changed("/hook", written, GATE)).hook
    assert hook is not None
    assert hook == Hook(
        gate=(Gate.ERROR, Gate.POST),
        modules=("db-*",),
        priority=3,
        on_failure=OnFailure.OPEN,
        timeout_s=0.5,
        queue=7,
        drop=Drop.NEWEST,
    )
    assert type(hook.priority) is int


@pytest.mark.parametrize("document", [SMALL, without("/hook", GATE)])
def test_a_module_without_the_field_is_no_hook_whatever_its_kind(document: Any) -> None:
    assert parsed(document).hook is None


@pytest.mark.parametrize("document", [COMPLETE, GATE])
def test_a_descriptor_written_out_whole_is_read_as_itself(document: Any) -> None:
    descriptor = parsed(document)
    again = parsed(descriptor_document(descriptor))
    assert again == msgspec.structs.replace(descriptor, digest=again.digest)


def test_everything_written_is_kept() -> None:
    document = changed("/supervision/timeouts/invoke_s", 0.25, COMPLETE)
    document = changed("/supervision/queue", 7.0, document)
    descriptor = parsed(document)
    assert descriptor.supervision.timeouts.invoke_s == 0.25
    assert descriptor.supervision.queue == 7
    assert type(descriptor.supervision.queue) is int
    assert descriptor.transport.env == {"KEY": "value ${HOME}"}
    assert descriptor.transport.pass_env == ("OPENAI_API_KEY",)
    assert descriptor.inputs == COMPLETE["inputs"]
    assert descriptor.outputs == COMPLETE["outputs"]
    assert (descriptor.version, descriptor.description) == ("1.0.0", "rolls dice")


def test_narratoria_modules_have_defaults_of_their_own() -> None:
    transport = parsed(changed("/transport/protocol", "narratoria")).transport
    assert transport.lifecycle is Lifecycle.PER_INVOCATION
    assert transport.stdout is StdoutPolicy.STRICT
    document = changed("/transport/protocol", "narratoria")
    document = changed("/transport/stdout", "tolerant", document)
    assert parsed(document).transport.stdout is StdoutPolicy.TOLERANT


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/later", {"any": ["thing"]}),
        ("/source", "/somewhere/else"),
        ("/digest", 3),
        ("/transport/later", None),
        ("/transport/comand", []),
        ("/name", "名前 with spaces"),
        ("/name", "n" * 128),
        ("/capabilities", []),
        ("/inputs", {}),
        ("/inputs", {"roll": True, "flip": {"$ref": "#/$defs/a", "$defs": {"a": {}}}}),
        ("/supervision", {}),
        ("/supervision/intensity", 0),
        ("/supervision/instances", {"min": 0}),
        ("/supervision/instances", {"min": 4, "max": 4}),
        ("/supervision/backoff/jitter", 1),
        ("/transport/lifecycle", "per-invocation"),
        ("/transport/env", {"EMPTY": ""}),
    ],
)
def test_what_is_unusual_but_right_is_accepted(pointer: str, value: Any) -> None:
    descriptor = parsed(changed(pointer, value))
    assert descriptor.source == SOURCE
    assert len(descriptor.digest) == 64


def test_a_byte_order_mark_is_tolerated() -> None:
    assert parse_descriptor(b"\xef\xbb\xbf" + encoded(SMALL), SOURCE).name == "dice"


@pytest.mark.parametrize("pointer", ["/name", "/kind", "/transport"])
def test_a_missing_member_is_named_with_what_it_must_be(pointer: str) -> None:
    (problem,) = refusal(encoded(without(pointer))).problems
    assert problem.pointer == pointer
    assert problem.message.startswith("is missing, must be ")


def test_a_descriptor_without_capabilities_grants_none() -> None:
    assert parsed(without("/capabilities")).capabilities == ()


def test_a_stdio_module_without_command_is_refused_and_a_misspelling_is_pointed_out() -> None:
    document = changed("/transport/comand", ["dice"], without("/transport/command"))
    (problem,) = refusal(encoded(document)).problems
    assert problem.pointer == "/transport/command"
    assert problem.message.endswith('is "comand" a misspelling of it?')


def test_a_transport_without_type_is_refused() -> None:
    (problem,) = refusal(encoded(without("/transport/type"))).problems
    assert str(problem) == '/transport/type: is missing, must be one of "stdio", "http"'


FAR = changed("/transport", {"type": "http", "url": "https://far.example:8420/modules/dice"})


def test_a_service_has_an_address_and_no_command() -> None:
    assert parsed(changed("/transport/command", ["x"], FAR)).transport.command == ()
    (problem,) = refusal(encoded(without("/transport/url", FAR))).problems
    assert str(problem) == "/transport/url: is missing, must be a string"


@pytest.mark.parametrize(
    "url",
    ["", "far", "ftp://far/", "http://", "http://ada:hunter2@far/", "http://far/?key=hunter2",
     "http://far/#hunter2", "http://far/a b", "http://far\n", "http://f\u00e4r/"],
)  # fmt: skip
def test_an_address_that_is_none_or_holds_a_secret_is_refused_and_the_secret_not_shown(
    url: str,
) -> None:
    (problem,) = refusal(encoded(changed("/transport/url", url, FAR))).problems
    assert "must be an address such as" in problem.message
    assert "hunter2" not in problem.message


@pytest.mark.parametrize("url", ["http://far", "http://[::1]:80/", "https://a-b.c_d/x/%20/y.z~"])
def test_an_address_may_be_of_any_host_port_and_path(url: str) -> None:
    assert parsed(changed("/transport/url", url, FAR)).transport.url == url


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/transport/protocol", "narratoria"),
        ("/transport/lifecycle", "per-invocation"),
        ("/transport/prepare", ["make"]),
        ("/supervision/limits/memory_bytes", 1 << 30),
        ("/supervision/limits/cpu_s", 1),
        ("/supervision/watch", True),
        ("/supervision/instances/max", 2),
    ],
)
def test_what_nobody_can_keep_of_a_service_is_refused(pointer: str, value: Any) -> None:
    (problem,) = refusal(encoded(changed(pointer, value, FAR))).problems
    assert (problem.pointer, "a service is not a process" in problem.message) == (pointer, True)


@pytest.mark.parametrize("name", ["Host", "content-length", "X Key", ""])
def test_a_header_that_is_the_hosts_own_or_none_is_refused(name: str) -> None:
    (problem,) = refusal(encoded(changed(f"/transport/headers/{name}", "x", FAR))).problems
    assert problem.pointer.startswith("/transport/headers")


@pytest.mark.parametrize(
    ("protocol", "wrong", "right", "why"),
    [
        ("narratoria", "persistent", "per-invocation", "runs a process per invocation"),
        ("mcp", "per-invocation", "persistent", "speaks with one process for many requests"),
    ],
)
def test_a_dialect_with_one_lifecycle_refuses_the_other(
    protocol: str, wrong: str, right: str, why: str
) -> None:
    document = changed("/transport/protocol", protocol)
    (problem,) = refusal(encoded(changed("/transport/lifecycle", wrong, document))).problems
    assert str(problem) == (
        f'/transport/lifecycle: is "{wrong}", must be "{right}": {protocol} {why}'
    )


def test_all_problems_are_told_at_once_sorted_by_pointer_one_line_each() -> None:
    document = changed("/supervision/timeouts/invok_s", 3, changed("/kind", "tol"))
    error = refusal(encoded(changed("/transport/odd\nkey", 1, changed("/name", 7, document))))
    assert [problem.pointer for problem in error.problems] == [
        "/kind",
        "/name",
        "/supervision/timeouts/invok_s",
    ]
    *_, last = str(error).splitlines()
    assert last == (
        f"{SOURCE}: /supervision/timeouts/invok_s: unknown key; did you mean 'invoke_s'?"
    )


def test_the_number_of_problems_is_bounded() -> None:
    error = refusal(encoded(changed("/transport/command", [0] * 5000)))
    assert len(error.problems) == MAX_PROBLEMS


def test_a_problem_with_a_strange_key_is_still_one_printable_line() -> None:
    error = refusal(encoded(changed("/supervision", {"a\nb\u202e" + "c" * 5000: 1})))
    assert str(error).isprintable()
    assert len(str(error)) < 700


def test_a_descriptor_without_inputs_is_read_without_jsonschema() -> None:
    program = (
        "import sys; from protocol.descriptor.loading import parse_descriptor; "
        "parse_descriptor(sys.stdin.buffer.read(), '/m.json'); "
        "assert 'jsonschema' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], input=encoded(SMALL), check=True)
