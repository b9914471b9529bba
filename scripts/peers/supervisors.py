"""The supervisors that are compared: how each is told what to run, asked, and ended.

Each runs with its defaults, except for what keeps it to itself (sockets, folders) and for the two
seconds that a stop may take, which all of them can be told.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from scripts.peers import environments
from scripts.peers.supervisor import Death, Program, Supervisor

ROOT = Path(__file__).parents[2]


class Stdiod(Supervisor):
    """This project, as it stands in this checkout."""

    name = "stdiod"

    @classmethod
    def version(cls) -> str | None:
        """Return the checkout's version."""
        from protocol.version import VERSION  # noqa: PLC0415

        return VERSION

    def configure(self, programs: Sequence[Program]) -> None:
        """Write descriptors."""
        (self.folder / "modules").mkdir()
        for program in programs:
            document = {
                "name": program.name,
                "kind": "tool",
                "version": "1",
                "description": "compared",
                "capabilities": [],
                "transport": {"type": "stdio", "command": program.command(self.births)},
                "supervision": {"timeouts": {"exit_s": 1, "stop_s": 1}},
            }
            path = self.folder / "modules" / f"{program.name}.json"
            path.write_text(json.dumps(document))

    def command(self) -> list[str]:
        """Run it in the foreground."""
        where = ["--data-dir", str(self.folder / "data"), "--log-format", "json"]
        return [*self._stdiod("run"), "modules", *where]

    def stop(self, name: str) -> list[str]:
        """Use `stdiod stop`."""
        return [*self._stdiod("stop"), name]

    def gave_up(self, name: str) -> bool:
        """Look for its state `failed`."""
        return bool(self._status(name).get("state") == "failed")

    def death(self, name: str) -> Death:
        """Look into `last_exit`."""
        last = self._status(name).get("last_exit") or {}
        return Death(last.get("exit_code"), last.get("signal"))

    def environment(self) -> dict[str, str]:
        """Make this checkout importable."""
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def _stdiod(self, verb: str) -> list[str]:
        return [sys.executable, "-m", "supervisor.cli", verb, "--socket", str(self.folder / "s")]

    def _status(self, name: str) -> dict[str, Any]:
        shown = json.loads(self.run([*self._stdiod("status"), name, "--json"]))
        return dict(shown["modules"][0] if "modules" in shown else shown)


class Packaged(Supervisor):
    """One that is installed from PyPI into an environment of its own."""

    package: ClassVar[str]
    environments: ClassVar[Path] = environments.FOLDER

    @classmethod
    def version(cls) -> str | None:
        """Look into its environment."""
        return environments.version(cls.package, cls.environments)

    def tool(self, name: str) -> str:
        """Return the path of one of its commands."""
        return str(environments.program(self.package, name, self.environments))


class Supervisord(Packaged):
    """http://supervisord.org."""

    name = package = "supervisor"

    def configure(self, programs: Sequence[Program]) -> None:
        """Write one file."""
        interface = "supervisor.rpcinterface:make_main_rpcinterface"
        text = f"""
[unix_http_server]
file={self.folder}/s
[supervisord]
logfile={self.folder}/log
pidfile={self.folder}/pid
childlogdir={self.folder}
[rpcinterface:supervisor]
supervisor.rpcinterface_factory={interface}
[supervisorctl]
serverurl=unix://{self.folder}/s
"""
        for program in programs:
            command = shlex.join(program.command(self.births))
            text += f"[program:{program.name}]\ncommand={command}\nstopwaitsecs=2\n"
            text += "stopasgroup=true\nkillasgroup=true\n" if program.whole_group else ""
        (self.folder / "conf").write_text(text)

    def command(self) -> list[str]:
        """Run it in the foreground."""
        return [self.tool("supervisord"), "-n", "-c", "conf"]

    def stop(self, name: str) -> list[str]:
        """Use supervisorctl."""
        return [self.tool("supervisorctl"), "-c", "conf", "stop", name]

    def gave_up(self, name: str) -> bool:
        """Look for its state FATAL."""
        return "FATAL" in self.run([self.tool("supervisorctl"), "-c", "conf", "status", name])

    def death(self, name: str) -> Death:
        """Look into getProcessInfo, which has more than `status` prints."""
        words = (
            "import json, xmlrpc.client as c;"
            "from supervisor.xmlrpc import SupervisorTransport as T;"
            f"p = c.ServerProxy('http://x', transport=T(None, None, 'unix://{self.folder}/s'));"
            f"print(json.dumps(p.supervisor.getProcessInfo({name!r})['exitstatus']))"
        )
        code = json.loads(self.run([self.tool("python"), "-c", words]))
        # 0 stands for "none" too, and -1 for any signal.
        return Death(exit_code=code) if code > 0 else Death()


class Circus(Packaged):
    """https://circus.readthedocs.io."""

    name = package = "circus"

    def configure(self, programs: Sequence[Program]) -> None:
        """Write one file; its sockets are files too."""
        text = f"""
[circus]
endpoint = ipc://{self.folder}/e
pubsub_endpoint = ipc://{self.folder}/p
statsd = False
"""
        for program in programs:
            command = shlex.join(program.command(self.births))
            text += f"[watcher:{program.name}]\ncmd = {command}\ngraceful_timeout = 2\n"
            text += "copy_env = True\n"
            text += "stop_children = True\n" if program.whole_group else ""
        (self.folder / "conf").write_text(text)

    def command(self) -> list[str]:
        """Run it in the foreground."""
        return [self.tool("circusd"), "conf"]

    def stop(self, name: str) -> list[str]:
        """Use circusctl, waiting."""
        return [*self._control(), "stop", name, "--waiting"]

    def gave_up(self, name: str) -> bool:
        """Look for a watcher that stopped by itself."""
        return "stopped" in self.run([*self._control(), "status", name])

    def death(self, name: str) -> Death:
        """Look into its stats, the only thing it says of processes."""
        said = self.run([*self._control(), "stats", name])
        found = re.search(r"exit[\w ]*[:=] ?(\d+)", said)
        return Death(exit_code=int(found[1])) if found else Death()

    def _control(self) -> list[str]:
        return [self.tool("circusctl"), "--endpoint", f"ipc://{self.folder}/e", "--timeout", "30"]


class S6(Supervisor):
    """https://skarnet.org/software/s6, without a logger, which is not its default."""

    name = "s6"

    @classmethod
    def version(cls) -> str | None:
        """Ask dpkg, since s6 does not say."""
        if shutil.which("s6-svscan") is None:
            return None
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", "s6"],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or "of unknown version"

    def configure(self, programs: Sequence[Program]) -> None:
        """Make a service folder each."""
        for program in programs:
            service = self.folder / "scan" / program.name
            service.mkdir(parents=True)
            run = service / "run"
            run.write_text(f"#!/bin/sh\nexec {shlex.join(program.command(self.births))}\n")
            run.chmod(0o755)
            (service / "timeout-kill").write_text("2000\n")

    def command(self) -> list[str]:
        """Run it in the foreground, with room for all."""
        return ["s6-svscan", "-c", "200", str(self.folder / "scan")]

    def stop(self, name: str) -> list[str]:
        """Use s6-svc, waiting."""
        return ["s6-svc", "-wD", "-d", str(self.folder / "scan" / name)]

    def gave_up(self, name: str) -> bool:
        """Look for a service that is down though it is wanted up: `finish` could do that."""
        said = self.run(["s6-svstat", "-o", "up,wantedup", str(self.folder / "scan" / name)])
        return said.split() == ["false", "false"]

    def death(self, name: str) -> Death:
        """Look into its tally of deaths."""
        said = self.run(["s6-svdt", str(self.folder / "scan" / name)])
        code = re.findall(r"exitcode (\d+)", said)
        number = re.findall(r"signal SIG(\w+)", said)
        return Death(
            int(code[-1]) if code else None,
            int(signal.Signals[f"SIG{number[-1]}"]) if number else None,
        )


PEERS: tuple[type[Supervisor], ...] = (Stdiod, Supervisord, Circus, S6)
