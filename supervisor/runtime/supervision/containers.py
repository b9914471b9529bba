"""The container that a command runs: removed by its id, and by nothing else, once that is over.

A container outlives its client, such as a `docker run` that is killed. So where `${STDIOD_CIDFILE}`
stands in `transport.command`, each start gets a folder below the data directory for the id, with a
record, written before the spawn, of how the client is run, filled in. When the process is over:

    no id: no container (a client that is killed early enough tells none)
    CLIENT rm -f ID: gone; or it fails, and `inspect` knows of no such container: gone
                     else left over: named with the command for it, and its record stays

A daemon begins with the records of the one before; modules that run containers start after that.
A persistent one tries again, too, what is left over by then.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import uuid
from collections.abc import Awaitable, Mapping
from functools import partial
from pathlib import Path, PurePath

import msgspec
import structlog
import trio
from msgspec.structs import replace

from protocol.descriptor.model import Descriptor, Lifecycle, Supervision, Timeouts, Transport
from protocol.problem import without_password
from supervisor.runtime.containment.process_registry import ProcessRegistry
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.process.environment import CIDFILE, UnsetVariableError, resolved
from supervisor.runtime.process.incarnation import Incarnation
from supervisor.runtime.process.process import Process
from supervisor.runtime.process.program import SpawnError, named_program
from supervisor.runtime.process.spawning import NOTHING, spawn
from supervisor.runtime.supervision.prepare import Unprepared, prepare_once

BOUNDS = Supervision(timeouts=Timeouts(prepare_s=4.0, stop_s=0.5))
"""Of each run of the client, which may wait for a daemon that does not answer."""

REMOVED_WITHIN_S = 15.0  # two of them, and their spawns on a slow machine
_FIELDS = {"name": "", "kind": "tool", "transport": {}, "source": "", "folder": "/", "digest": ""}
_CLIENT = replace(msgspec.convert(_FIELDS, Descriptor), supervision=BOUNDS)

_CIDFILE = re.compile(rf"(?<!\$)\$\{{{CIDFILE}\}}")
_ID = re.compile(r"\A[0-9a-f]{64}\Z")
_UNKNOWN = re.compile(r"no such (object|container)", re.IGNORECASE)
_OF_CLIENT = re.compile(r"DOCKER_|CONTAINER|XDG_|DBUS_|SSH_AUTH_SOCK$|PATH$|HOME$")

log = structlog.get_logger()


class Remover(msgspec.Struct, frozen=True):
    """What removes a module's container: the words before `run`, and the variables that count."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]


class Containers:
    def __init__(
        self,
        registry: ProcessRegistry,
        host: Mapping[str, str],
        log_files: LogFiles,
        inherited: tuple[int, ...] = (),
    ) -> None:
        """`inherited` are descriptors that each process gets, besides its pipes."""
        self.left: dict[Path, str] = {}
        """The commands that remove those that are left over, by the folders of their records."""
        self._registry, self._host, self._log_files = registry, host, log_files
        self._inherited = inherited
        self._sweeping, self._swept = trio.Lock(), False

    async def sweep(self, *, again: bool = False) -> None:
        """Remove what the former daemon left, once, and what is left over if it is tried again."""
        async with self._sweeping:
            if not self._swept or (again and self.left):
                read = partial(_read_records, Path(self._registry.data_dir or "", "containers"))
                former = await self._registry.threads.run("looking for left containers", read)
                async with trio.open_nursery() as nursery:
                    for folder, client in former.items():
                        if not self._swept or folder in self.left:
                            nursery.start_soon(self._remove, folder, client)
            self._swept = True

    async def spawn(
        self,
        descriptor: Descriptor,
        incarnation: Incarnation,
        variables: Mapping[str, str] = NOTHING,
    ) -> Process:
        """Start a module's command for an incarnation, as `spawning.spawn` does."""
        registry, transport = self._registry, descriptor.transport
        if arguments := incarnation.connection.arguments:
            transport = replace(transport, command=(*transport.command, *arguments))
            descriptor = replace(descriptor, transport=transport)
        others = (self._host, incarnation.instance, registry, incarnation.opening)
        if not any(CIDFILE in word for word in transport.command):
            inherited = self._inherited
            process = await spawn(descriptor, *others, variables=variables, inherited=inherited)
            incarnation.spawned(process)
            return process
        await self.sweep(again=transport.lifecycle is Lifecycle.PERSISTENT)
        assert registry.data_dir is not None  # noqa: S101 - of whoever runs modules of others
        folder = registry.data_dir / "containers" / uuid.uuid4().hex
        client = Remover(descriptor.name, (), {})
        cidfile = str(folder / "id")
        command = tuple(_CIDFILE.sub(lambda _: cidfile, word) for word in transport.command)
        descriptor = replace(descriptor, transport=replace(transport, command=command))
        try:
            noting = f"noting a container of {client.name}"
            note = partial(_write_record, folder, descriptor, self._host)
            client = await registry.threads.run(noting, note)
            process = await spawn(descriptor, *others, variables=variables)
        except (OSError, SpawnError, UnsetVariableError) as error:
            await self._remove(folder, client)
            raise SpawnError(str(error)) from None
        process.remove_container = partial(self._remove, folder, client)
        incarnation.spawned(process)
        return process

    async def _remove(self, folder: Path, client: Remover) -> str:
        """Remove the container, if there is one; returns a clause that names it if it is left."""
        looking = f"looking at the id of a container of {client.name}"
        run = partial(self._registry.threads.run, looking)
        found = await run(partial(_read_id, folder))
        if found:
            why = "the daemon ended before that"
            # Without `-t 0` podman waits 10 s for it to end by SIGTERM.
            podman = any(PurePath(word).name.startswith("podman") for word in client.argv)
            removal = ("rm", "-f", *(("-t", "0") if podman else ()), found)
            by_hand = without_password(shlex.join((*client.argv, *removal)))
            try:
                why = await self._obstacle(client, removal)
            finally:
                if why and folder not in self.left:
                    self.left[folder] = by_hand
                    known = {"module": client.name, "remove_with": by_hand, "words": why}
                    log.error("a container is left over", **known)
            if why:
                return f"; its container is left over ({why}): remove it with {by_hand}"
        self.left.pop(folder, None)
        await run(partial(shutil.rmtree, folder, ignore_errors=True))
        return ""

    async def _obstacle(self, client: Remover, removal: tuple[str, ...]) -> str:
        """Run the removal; returns why the container may still be there, empty if it is gone."""

        def run(*words: str) -> Awaitable[Unprepared | None]:
            command = (*client.argv, *words)
            transport = Transport(prepare=command, pass_env=tuple(client.env))
            ran = replace(_CLIENT, name=client.name, transport=transport)
            variables = {**self._host, **client.env}
            return prepare_once(ran, variables, self._registry, self._log_files)

        failed = await run(*removal)
        if failed is None:
            return ""
        await trio.sleep(1)  # its own `--rm` may be about to remove it
        seen = await run("inspect", removal[-1])
        # A client that does not reach its daemon fails, too, and knows nothing.
        if seen is not None and any(map(_UNKNOWN.search, seen.printed)):
            return ""
        return "; ".join((failed.words.removesuffix(" (prepare_s)"), *failed.printed[-1:]))


def _write_record(folder: Path, descriptor: Descriptor, host: Mapping[str, str]) -> Remover:
    """Note how a container is removed; raises `OSError` and `UnsetVariableError`."""
    filled, variables = resolved(descriptor, host, "")
    command = filled.transport.command
    at = [*command, "run"].index("run")
    argv = (named_program(filled) or command[0], *command[1:at])
    argv = argv if 0 < at < len(command) else ("docker",)
    env = {name: value for name, value in variables.items() if _OF_CLIENT.match(name)}
    client = Remover(descriptor.name, argv, env)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    record = folder / "client.json"
    record.touch(mode=0o600)
    record.write_bytes(msgspec.json.encode(client))
    return client


def _read_records(containers: Path) -> dict[Path, Remover]:
    found: dict[Path, Remover] = {}
    for path in containers.glob("*/client.json"):
        try:
            found[path.parent] = msgspec.json.decode(path.read_bytes(), type=Remover)
        except (OSError, msgspec.DecodeError) as error:
            log.warning("a container may be left over", record=str(path), words=str(error))
    return found


def _read_id(folder: Path) -> str:
    with contextlib.suppress(OSError):  # podman removes it with the container
        return "".join(_ID.findall((folder / "id").read_text(errors="replace").strip()))
    return ""
