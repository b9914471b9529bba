"""The container of a module: none outlives the module's process, whatever that ended by."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import until
from tests.system.conftest import StartDaemon
from tests.system.daemon import Daemon
from tests.system.descriptors import PYTHON, descriptor, misbehaving

STAND_IN = Path(__file__).with_name("stand_in_docker.py")


class Docker:
    """A stand-in for docker, and its containers."""

    def __init__(self, folder: Path, name: str = "docker") -> None:
        self.state = folder / "docker-state"
        self.state.mkdir()
        self.program, self.env_file = folder / name, folder / "docker.env"
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {STAND_IN} "$@"\n')
        self.program.chmod(0o755)

    def module(
        self, *options: str, mode: str = "", lifecycle: str = "persistent", **supervision: Any
    ) -> dict[str, Any]:
        """Return a module in a container."""
        run = ["--context", "far", "run", "--init", "--cidfile", "${STDIOD_CIDFILE}"]
        command = [str(self.program), *run, "-i", *options, "image", *PYTHON]
        env = {"DOCKER_STATE": str(self.state), "DOCKER_MODE": mode, "SECRET": "s3cret-s3cret"}
        supervision = {**misbehaving("any")["supervision"], **supervision}
        return descriptor("boxed", command, env=env, lifecycle=lifecycle, supervision=supervision)

    def be(self, mode: str) -> None:
        (self.state / "mode").write_text(mode)

    @property
    def containers(self) -> list[str]:
        return [path.stem for path in self.state.glob("*.container")]

    def only(self) -> str:
        (container,) = self.containers
        return container

    def beside(self) -> str:
        """Return which others there were when the one that there is was made."""
        return (self.state / f"{self.only()}.container").read_text()

    def calls(self) -> list[str]:
        return (self.state / "calls").read_text().splitlines()


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    return Docker(tmp_path)


def records(daemon: Daemon) -> list[Path]:
    return list((daemon.data_dir / "containers").glob("*"))


def killed(folder: Path, *documents: dict[str, Any]) -> Daemon:
    """Return a daemon that was killed while its modules ran."""
    daemon = Daemon(folder, *documents)
    daemon.process.kill()
    daemon.process.wait()
    daemon.client.close()
    return daemon


def stop(daemon: Daemon) -> None:
    daemon.op("stop", module="boxed")


def restart(daemon: Daemon) -> None:
    daemon.op("restart", module="boxed")


def kill_client(daemon: Daemon) -> None:
    os.kill(daemon.pid("boxed"), signal.SIGKILL)


def crash(daemon: Daemon) -> None:
    daemon.invoke("boxed", fault="exit", code=3)


def remove_module(daemon: Daemon) -> None:
    for path in daemon.modules.glob("**/*.json"):
        path.unlink()
    daemon.op("reload")


@pytest.mark.parametrize("options", [(), ("--rm",)], ids=["stays", "rm"])
@pytest.mark.parametrize("end", [stop, restart, kill_client, crash, remove_module])
def test_a_container_is_gone_before_the_next_one_is_made(
    start_daemon: StartDaemon,
    docker: Docker,
    end: Callable[[Daemon], None],
    options: tuple[str, ...],
) -> None:
    daemon = start_daemon(docker.module(*options))
    first = docker.only()
    end(daemon)
    if end in {stop, remove_module}:
        until(lambda: not docker.containers and not records(daemon), "no container")
    else:
        until(lambda: docker.containers not in ([], [first]), "another container")
        daemon.op("wait", modules=["boxed"])
        assert docker.beside() == ""
        assert len(records(daemon)) == 1
        daemon.end()
    assert docker.containers == []
    assert f"--context far rm -f {first}" in docker.calls()


def test_the_end_of_the_daemon_waits_for_the_removal(
    start_daemon: StartDaemon, docker: Docker
) -> None:
    daemon = start_daemon(docker.module())
    docker.only()
    daemon.end()
    assert docker.containers == []
    assert records(daemon) == []


@pytest.mark.parametrize("warm", [0, 2])
def test_each_process_per_invocation_takes_its_container_along(
    start_daemon: StartDaemon, docker: Docker, warm: int
) -> None:
    document = docker.module(lifecycle="per-invocation", warm=warm, concurrency=3)
    daemon = start_daemon(document)
    for _ in range(2):
        assert daemon.invoke("boxed").ok
    daemon.end()
    assert docker.containers == []
    assert records(daemon) == []


def test_the_next_daemon_removes_what_a_killed_one_left_and_waits_for_that_with_the_module(
    start_daemon: StartDaemon, docker: Docker, folder: Path
) -> None:
    first = killed(folder, docker.module())
    (record,) = records(first)
    kept = "".join(path.read_text() for path in record.iterdir())
    assert "s3cret" not in kept
    assert record.parent.stat().st_mode & 0o777 == 0o700
    left = docker.only()
    second = start_daemon(docker.module())
    assert docker.only() != left
    assert docker.beside() == ""
    assert second.invoke("boxed").ok
    second.end()
    assert docker.containers == []


def test_a_container_of_a_module_that_is_gone_is_removed_by_the_next_daemon(
    start_daemon: StartDaemon, docker: Docker, folder: Path
) -> None:
    first = killed(folder, docker.module())
    for path in first.modules.glob("**/*.json"):
        path.unlink()
    second = start_daemon()
    until(lambda: not docker.containers and not records(second), "no container")


@pytest.mark.parametrize("mode", ["hangs", "refuses"])
def test_a_container_that_cannot_be_removed_is_named_and_tried_again_by_the_next_daemon(
    start_daemon: StartDaemon, docker: Docker, mode: str
) -> None:
    daemon = start_daemon(docker.module(), misbehaving("plain"))
    left = docker.only()
    docker.be(mode)
    asked = {"op": "stop", "args": {"module": "boxed"}}
    stopping = daemon.client.send("supervisor", "invoke", asked)
    with daemon.connect() as another:
        assert another.invoke("plain", "go", 60).ok
    assert daemon.client.answer(stopping).ok
    by_hand = f"{docker.program} --context far rm -f {left}"
    until(lambda: daemon.status("boxed")["state"] == "down", "its end")
    assert by_hand in daemon.status("boxed")["last_exit"]["message"]
    assert daemon.op("status")["daemon"]["left_containers"] == [by_hand]
    daemon.op("start", module="boxed")
    daemon.op("wait", modules=["boxed"])
    assert daemon.op("status")["daemon"]["left_containers"] == [by_hand]
    daemon.process.terminate()
    daemon.wait_ended()
    assert by_hand in daemon.log()
    assert daemon.log().count("a container is left over") == 2
    daemon.log_path.write_text("")  # an error is no fault of this test's daemon
    docker.be("")
    start_daemon()
    until(lambda: left not in docker.containers, "the container being gone")


def test_a_container_that_was_left_over_and_is_gone_is_no_longer_named(
    start_daemon: StartDaemon, docker: Docker
) -> None:
    daemon = start_daemon(docker.module())
    docker.be("refuses")
    stop(daemon)
    (left,) = docker.state.glob("*.container")
    left.unlink()
    docker.be("")
    daemon.op("start", module="boxed")
    until(lambda: not daemon.op("status")["daemon"]["left_containers"], "it being forgotten")
    assert len(records(daemon)) == 1
    daemon.log_path.write_text("")  # an error is no fault of this test's daemon


def far_variables(docker: Docker) -> dict[str, Any]:
    """Return a module whose client knows by an env file where its docker is."""
    document = docker.module()
    transport = document["transport"]
    docker.env_file.write_text(
        "".join(f"{name}={text}\n" for name, text in transport["env"].items())
    )
    env = {"DOCKER_HOST": "${DOCKER_HOST:-tcp://here}", "DOCKER_STATE": "${DOCKER_STATE}"}
    return {
        **document,
        "transport": {**transport, "env_file": str(docker.env_file), "env": env, "expand": True},
    }


@pytest.mark.parametrize("end", ["stop", "kill -9"])
@pytest.mark.parametrize("then", ["gone", "broken"])
def test_what_removes_a_container_needs_nothing_that_the_descriptor_refers_to(
    start_daemon: StartDaemon, docker: Docker, folder: Path, end: str, then: str
) -> None:
    document = far_variables(docker)
    daemon = killed(folder, document) if end == "kill -9" else start_daemon(document)
    docker.only()
    (record,) = records(daemon)
    assert (record / "client.json").stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in (record / "client.json").read_text()
    if then == "gone":
        docker.env_file.unlink()
    else:
        docker.env_file.write_text("what is this\n")
    if end == "stop":
        stop(daemon)
    else:
        for path in daemon.modules.glob("**/*.json"):
            path.unlink()
        start_daemon()
    until(lambda: not docker.containers and not records(daemon), "no container")


def test_a_removal_that_another_was_quicker_with_is_none_to_be_told_of(
    start_daemon: StartDaemon, docker: Docker
) -> None:
    daemon = start_daemon(docker.module())
    docker.be("progress")
    stop(daemon)
    assert daemon.op("status")["daemon"]["left_containers"] == []
    assert records(daemon) == []


def test_a_client_that_still_pulls_has_nothing_to_remove(
    start_daemon: StartDaemon, docker: Docker
) -> None:
    docker.be("pulls")
    daemon = start_daemon(docker.module(), wait=False)
    until((docker.state / "pulling").exists, "the pull")
    daemon.end()
    assert len(docker.calls()) == 1
    assert records(daemon) == []


def test_podman_does_not_wait_for_the_container_to_end_by_itself(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    podman = Docker(tmp_path, "podman")
    daemon = start_daemon(podman.module())
    left = podman.only()
    daemon.end()
    assert podman.containers == []
    assert podman.calls()[-1] == f"--context far rm -f -t 0 {left}"


def test_a_client_that_is_not_there_leaves_no_record(
    start_daemon: StartDaemon, docker: Docker
) -> None:
    document = docker.module()
    docker.program.unlink()
    daemon = start_daemon(document)
    assert daemon.status("boxed")["last_exit"]["reason"] == "spawn_failed"
    stop(daemon)
    assert records(daemon) == []
