"""The container that a command runs: removed by its id, and by nothing else, once that is over.

A container outlives its client, such as a `docker run` that is killed. So where `${STDIOD_CIDFILE}`
stands in `transport.command`, each start gets a folder below the data directory for the id, with a
record, written before the spawn, of how the client is run. When the process is over:

    no id: no container (a client that is killed early enough tells none)
    CLIENT rm -f ID: gone; or it fails, and `inspect` knows of no such container: gone
                     else left over: named with the command for it, and its record stays

A daemon begins with the records of the one before; modules that run containers start after that.
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

from protocol.descriptor.model import Descriptor, Supervision, Timeouts
from supervisor.runtime.containment.custody import Custody
from supervisor.runtime.files.log_files import LogFiles
from supervisor.runtime.process.environment import CIDFILE
from supervisor.runtime.process.opening import Opening
from supervisor.runtime.process.prepare_once import Unprepared, prepare_once
from supervisor.runtime.process.process import Process
from supervisor.runtime.process.program import SpawnError
from supervisor.runtime.process.spawning import NOTHING, spawn

BOUNDS = Supervision(timeouts=Timeouts(prepare_s=10.0, stop_s=0.5))
"""Of each run of the client, which may wait for a daemon that does not answer."""

_CIDFILE = re.compile(rf"(?<!\$)\$\{{{CIDFILE}\}}")
_ID = re.compile(r"\A[0-9a-f]{64}\Z")
_UNKNOWN = re.compile(r"no such (object|container)", re.IGNORECASE)
_OF_CLIENT = re.compile(r"DOCKER_|CONTAINER|XDG_|DBUS_|SSH_AUTH_SOCK$|PATH$|HOME$")

log = structlog.get_logger()


class Containers:
    """The containers that a daemon's modules run."""

    def __init__(self, custody: Custody, host: Mapping[str, str], log_files: LogFiles) -> None:
        self.left: list[str] = []
        """The commands that remove those that are left over."""
        self._custody, self._host, self._log_files = custody, host, log_files
        self._sweeping, self._swept = trio.Lock(), False

    async def sweep(self) -> None:
        """Remove what the former daemon left, once, before anything else runs in a container."""
        async with self._sweeping:
            read = partial(_read_records, Path(self._custody.data_dir or "", "containers"))
            if not self._swept:
                former = await self._custody.blocking.run("looking for left containers", read)
                async with trio.open_nursery() as nursery:
                    for folder, client in former.items():
                        nursery.start_soon(self._remove, folder, client)
            self._swept = True

    async def spawn(
        self,
        descriptor: Descriptor,
        instance: str,
        opening: Opening | None = None,
        variables: Mapping[str, str] = NOTHING,
    ) -> Process:
        """Start a module's command, as `spawning.spawn` does."""
        custody, transport = self._custody, descriptor.transport
        others = (self._host, instance, custody, opening)
        if not any(map(_CIDFILE.search, transport.command)):
            return await spawn(descriptor, *others, variables=variables)
        await self.sweep()
        assert custody.data_dir is not None  # noqa: S101 - of whoever runs modules of others
        folder, client = custody.data_dir / "containers" / uuid.uuid4().hex, _client(descriptor)
        cidfile = str(folder / "id")
        command = tuple(_CIDFILE.sub(lambda _: cidfile, word) for word in transport.command)
        descriptor = replace(descriptor, transport=replace(transport, command=command))
        try:
            noting = f"noting a container of {client.name}"
            await custody.blocking.run(noting, partial(_write_record, folder, client))
            process = await spawn(descriptor, *others, variables=variables)
        except (OSError, SpawnError) as error:
            await self._remove(folder, client)
            raise SpawnError(str(error)) from None
        process.remove_container = partial(self._remove, folder, client)
        return process

    async def _remove(self, folder: Path, client: Descriptor) -> str:
        """Remove the container, if there is one; returns a clause that names it if it is left."""
        looking = f"looking at the id of a container of {client.name}"
        run = partial(self._custody.blocking.run, looking, in_any_case=True)
        found = await run(partial(_read_id, folder))
        if found:
            program, why = client.transport.command, "the daemon ended before that"
            # Without `-t 0` podman waits 10 s for it to end by SIGTERM.
            podman = any(PurePath(word).name.startswith("podman") for word in program)
            removal = ("rm", "-f", *(("-t", "0") if podman else ()), found)
            by_hand = shlex.join((*program, *removal))
            try:
                why = await self._obstacle(client, removal)
            finally:
                if why:
                    self.left.append(by_hand)
                    known = {"module": client.name, "remove_with": by_hand, "words": why}
                    log.error("a container is left over", **known)
            if why:
                return f"; its container is left over ({why}): remove it with {by_hand}"
        await run(partial(shutil.rmtree, folder, ignore_errors=True))
        return ""

    async def _obstacle(self, client: Descriptor, removal: tuple[str, ...]) -> str:
        """Run the removal; returns why the container may still be there, empty if it is gone."""

        def run(*words: str) -> Awaitable[Unprepared | None]:
            transport = replace(client.transport, prepare=(*client.transport.command, *words))
            ran = replace(client, transport=transport)
            return prepare_once(ran, self._host, self._custody, self._log_files)

        failed = await run(*removal)
        if failed is None:
            return ""
        await trio.sleep(1)  # its own `--rm` may be about to remove it
        seen = await run("inspect", removal[-1])
        # A client that does not reach its daemon fails, too, and knows nothing.
        if seen is not None and any(map(_UNKNOWN.search, seen.printed)):
            return ""
        return "; ".join((failed.words.removesuffix(" (prepare_s)"), *failed.printed[-1:]))


def _client(descriptor: Descriptor) -> Descriptor:
    """Return what runs the client: what stands before `run`, and the variables that it knows."""
    transport = descriptor.transport
    program = transport.command[: [*transport.command, "run"].index("run")]
    transport = replace(
        transport,
        command=program if 0 < len(program) < len(transport.command) else ("docker",),
        cwd="/",  # its folder may be gone by then
        env={name: text for name, text in transport.env.items() if _OF_CLIENT.match(name)},
        pass_env=tuple(filter(_OF_CLIENT.match, transport.pass_env)),
    )
    bare = replace(descriptor, transport=transport, inputs=None, outputs=None, hook=None)
    return replace(bare, supervision=BOUNDS)


def _write_record(folder: Path, client: Descriptor) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    (folder / "client.json").write_bytes(msgspec.json.encode(client))


def _read_records(containers: Path) -> dict[Path, Descriptor]:
    found: dict[Path, Descriptor] = {}
    for path in containers.glob("*/client.json"):
        try:
            found[path.parent] = msgspec.json.decode(path.read_bytes(), type=Descriptor)
        except (OSError, msgspec.DecodeError) as error:
            log.warning("a container may be left over", record=str(path), words=str(error))
    return found


def _read_id(folder: Path) -> str:
    with contextlib.suppress(OSError):  # podman removes it with the container
        return "".join(_ID.findall((folder / "id").read_text(errors="replace").strip()))
    return ""
