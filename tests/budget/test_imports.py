"""What the command imports, by name where it is ours and by count where it is Python's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import supervisor
from tests.cli.conftest import Serve, serve, socket_path
from tests.cli.fake_daemon import module, ok, status

__all__ = ["serve", "socket_path"]

PROGRAM = """
import sys
before = set(sys.modules)
from supervisor.cli.main import main
try:
    main()
finally:
    there = {name for name, module in sys.modules.items() if module is not None}
    sys.stderr.write("\\n" + " ".join(there - before))
"""
OURS = ("supervisor", "protocol", "schemas")

VERSION = {"protocol", "protocol.version", "supervisor", "supervisor.cli", "supervisor.cli.main"}
STATUS = VERSION | {
    "protocol.client",
    "protocol.errors",
    "protocol.frames",
    "protocol.framing",
    "protocol.host_call",
    "protocol.json_line",
    "protocol.weight",
    "protocol.problem",
    "supervisor.cli.client",
    "supervisor.daemon",
    "supervisor.daemon.collector",
    "supervisor.edge",
    "supervisor.edge.bindings",
    "supervisor.edge.bindings.blocking",
    "supervisor.cli.command_line",
    "supervisor.cli.configured",
    "supervisor.cli.daemon_verb",
    "supervisor.cli.exit_status",
    "supervisor.cli.quantities",
    "supervisor.cli.project",
    "supervisor.cli.lock_file",
    "supervisor.cli.options",
    "supervisor.cli.results",
    "supervisor.cli.standard_streams",
    "supervisor.cli.terminal",
    "supervisor.cli.status_text",
    "supervisor.policy",
    "supervisor.policy.verdict",
    "supervisor.cli.verbs",
    "supervisor.cli.verbs.daemon",
}
MCP = {
    "protocol",
    "supervisor",
    "supervisor.cli",
    "supervisor.cli.lock_file",
    "supervisor.cli.main",
    "supervisor.cli.quick_mcp",
    "supervisor.edge",
    "supervisor.edge.bindings",
    "supervisor.edge.bindings.blocking",
    "supervisor.edge.mcp_stdio",
}
"""Beside the protocol's."""

FOREIGN = {"click", "msgspec", "typing_extensions"}
"""msgspec takes typing_extensions if they are installed."""

LATER = {"json", "difflib", "shlex", "shutil", "sqlite3", "subprocess", "asyncio", "platformdirs"}
"""What is for failures, terminals and other verbs."""

VERSION_PYTHON = 40
"""Modules of the standard library, beyond what Python starts with: `signal` takes 24 in 3.11."""

MCP_PYTHON = 110
"""msgspec takes 60 of them in 3.11."""

STATUS_PYTHON = 110
"""click and msgspec take 80 of them in 3.11, `socket` and `pathlib` most of the others."""


def imported(*arguments: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ended.stderr.splitlines()[-1].split())


def modules_after(program: str, *options: str) -> set[str]:
    """Return what is imported once a program has run."""
    program += "\nimport sys; print(*sys.modules)"
    words = [sys.executable, *options, "-c", program]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    return set(ended.stdout.split())


def sorted_out(modules: set[str]) -> tuple[set[str], set[str], set[str]]:
    """Return ours, the others' packages, and the standard library's modules."""

    def of(packages: Sequence[str] | frozenset[str]) -> set[str]:
        return {name for name in modules if name.partition(".")[0] in packages}

    ours, pythons = of(OURS), of(sys.stdlib_module_names)
    foreign = {name.partition(".")[0] for name in modules - ours - pythons}
    return ours, foreign, pythons


def test_the_version_needs_no_package_and_five_modules_of_ours() -> None:
    ours, foreign, pythons = sorted_out(imported("--version"))
    assert ours == VERSION
    assert not foreign
    assert len(pythons) <= VERSION_PYTHON, sorted(pythons)


def test_status_imports_what_it_shows_and_nothing_else(serve: Serve, socket_path: Path) -> None:
    serve(lambda frame: [ok(status(module()))])
    ours, foreign, pythons = sorted_out(imported("status", "--socket", str(socket_path)))
    assert ours == STATUS
    assert foreign <= FOREIGN
    assert not pythons & LATER
    assert len(pythons) <= STATUS_PYTHON, sorted(pythons)


def test_up_imports_no_event_loop() -> None:
    there = modules_after("import supervisor.cli.command_line, supervisor.cli.verbs.up")
    assert "supervisor.cli.background" in there
    assert not there & {"trio", "structlog"}


def test_the_guardian_imports_neither_typing_nor_what_signal_takes() -> None:
    # As `guardian.command` starts it.
    ours = Path(supervisor.__path__[0]).parent
    program = f"import sys; sys.path.append({str(ours)!r}); "
    there = modules_after(f"{program}import supervisor.runtime.containment.guardian", "-I", "-S")
    assert not there & {"typing", "re", "signal", "enum"}


def test_a_daemon_imports_nothing_that_it_uses_seldom() -> None:
    program = """
import protocol, schemas, supervisor, supervisor.cli.command_line, supervisor.cli.verbs.run
from supervisor.daemon import late_imports
late_imports.put_off()
import supervisor.daemon.serve
"""
    there = modules_after(program)
    assert {"trio", "structlog", "supervisor.kernel.kernel"} < there
    seldom = {"_ssl", "asyncio.events", "bz2", "concurrent", "importlib.resources", "lzma"}
    assert not there & {*seldom, "sqlite3", "jsonschema", "prometheus_client"}


def test_what_is_imported_late_serves_as_if_it_had_been_there() -> None:
    program = """
from supervisor.daemon import late_imports
late_imports.put_off()
import asyncio, shutil, ssl, trio, trio._ssl
async def secured():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    here, there = trio.testing.memory_stream_pair()
    stream = trio.SSLStream(there, context, server_hostname="here")
    await here.aclose()
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError:
        pass
import trio.testing
trio.run(secured)
asyncio.run(asyncio.sleep(0))
assert shutil.which("sh")
"""
    assert {"_ssl", "asyncio.events", "lzma"} < modules_after(program)


def test_mcp_needs_msgspec_and_what_translates_where_a_daemon_runs(
    serve: Serve, socket_path: Path
) -> None:
    view = {"name": "default", "modules": None, "prefix": True}
    serve(lambda _: [ok({"name": "root", "pid": 1, "directories": [], "view": view})])
    ours, foreign, pythons = sorted_out(imported("mcp", "--socket", str(socket_path)))
    assert {one for one in ours if not one.startswith("protocol.")} == MCP
    dialects = {one for one in ours if one.startswith("protocol.dialects")}
    assert not dialects & {"protocol.dialects.registry", "protocol.dialects.mcp.connection"}
    assert foreign == {"msgspec"}
    assert not pythons & {
        "hashlib",
        "inspect",
        "random",
        "subprocess",
        "asyncio",
        "typing_extensions",
    }
    assert len(pythons) <= MCP_PYTHON, sorted(pythons)
