"""How a daemon is started in the background and ended; real daemons are in tests/system."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.cli import background
from supervisor.cli.project import default_data_dir, default_socket
from supervisor.cli.verbs import up as up_verb
from tests.cli.conftest import Run, Serve
from tests.cli.fake_daemon import Frame, Reply, Script, last_exit, log, module, ok, status

Program = Callable[[str], None]

READY = 'os.write(ready, b"ready\\n"); os.close(ready)'


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Have `up` start this in the place of a daemon; `ready` is the descriptor it is given."""

    def put(lines: str) -> None:
        path = tmp_path / "daemon.py"
        given = "ready = int(sys.argv[sys.argv.index('--ready-fd') + 1])"
        path.write_text(f"import os, sys, json\n{given}\n{lines}")
        monkeypatch.setattr(background, "_PROGRAM", path)

    return put


def answers(*, waiting: tuple[Reply, ...] = (), answer: Frame | None = None) -> Script:
    def script(frame: Frame) -> list[Reply] | None:
        op = frame["input"]["op"]
        if op == "wait":
            return [*waiting, ok({"modules": {}})]
        return [ok(answer if op == "status" else {"pid": 99})]

    return script


def test_a_second_daemon_on_a_socket_is_refused_with_the_pid_of_the_first(
    run: Run, serve: Serve, tmp_path: Path
) -> None:
    serve(answers(answer=status()))
    ended = run("up", str(tmp_path))
    assert ended.exit_code == 1
    assert f"a daemon (pid {os.getpid()}) listens on" in ended.stderr
    assert f"it does not serve {tmp_path};" in ended.stderr
    assert "does not serve" not in run("up", "/modules").stderr
    assert "down` ends it" in ended.stderr


def test_a_daemon_that_ends_before_it_listens_passes_its_status_on_and_its_last_words(
    run: Run, program: Program, tmp_path: Path
) -> None:
    program('print("stdiod: the roof is on fire", file=sys.stderr); sys.exit(5)')
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "stdiod.log").write_text("of an earlier daemon\n")
    ended = run("up", str(tmp_path))
    assert ended.exit_code == 5
    assert ended.stderr.splitlines() == [
        "stdiod: the daemon ended with status 5 before it listened",
        "  the roof is on fire",
    ]


def test_a_daemon_that_is_killed_before_it_listens_is_told_by_the_signal(
    run: Run, program: Program, tmp_path: Path
) -> None:
    program("os.kill(os.getpid(), 9)")
    ended = run("up", str(tmp_path))
    assert ended.exit_code == 1
    assert "the daemon was killed by SIGKILL before it listened" in ended.stderr


def test_lines_of_the_json_log_are_told_as_words(
    run: Run, program: Program, tmp_path: Path
) -> None:
    line = {"event": "cannot", "level": "error", "timestamp": "2026", "module": "dice"}
    program(f"print(json.dumps({line!r})); sys.exit(1)")
    assert "  error   cannot module=dice" in run("up", str(tmp_path)).stderr


def test_lines_of_another_daemon_that_shares_the_log_are_not_told(
    run: Run, program: Program, tmp_path: Path
) -> None:
    program(
        'for pid, event in ((1, "the winner listens"), (os.getpid(), "taken")):\n'
        '    print(json.dumps({"event": event, "level": "info", "daemon_pid": pid}))\n'
        "sys.exit(1)"
    )
    stderr = run("up", str(tmp_path)).stderr
    assert stderr.splitlines()[1:] == ["  info    taken"]


def test_every_line_of_a_log_file_says_which_daemon_wrote_it(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    program = (
        "import sys, structlog; from pathlib import Path\n"
        "from supervisor.daemon.daemon_log import set_up_logging\n"
        "from supervisor.runtime.threads import Threads\n"
        "log = set_up_logging('json', Path(sys.argv[1]), Threads())\n"
        "import os; structlog.get_logger().info('here', pid=os.getpid())\n"
        "log.close()"
    )
    subprocess.run([sys.executable, "-c", program, str(log_file)], check=True)
    line = json.loads(log_file.read_text())
    assert line["daemon_pid"] == line["pid"]


def test_a_daemon_that_does_not_listen_in_time_is_ended(
    run: Run, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LISTEN_S", 0.1)
    program("import signal; signal.pause()")
    ended = run("up", str(tmp_path))
    assert ended.exit_code == 1
    assert "the daemon did not listen in time and was ended" in ended.stderr


def test_the_daemon_gets_a_session_of_its_own_in_the_root_directory_and_no_stdin(
    program: Program, tmp_path: Path
) -> None:
    facts = tmp_path / "facts"
    program(
        "facts = [os.getpid(), os.getsid(0), os.getcwd(), sys.argv[1], sys.stdin.read()]\n"
        f"open({str(facts)!r}, 'w').write(json.dumps(facts))\n{READY}"
    )
    pid = background.start(["--", "x"], tmp_path / "data")
    os.waitpid(pid, 0)
    assert json.loads(facts.read_text()) == [pid, pid, "/", "run", ""]


def test_relative_paths_of_a_certificate_are_those_of_whoever_types_them(
    run: Run, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program("print(*sys.argv, file=sys.stderr); sys.exit(1)")
    tls = ("--http", "127.0.0.1:0", "--http-cert", "c.pem", "--http-key", "k.pem")
    told = run("up", str(tmp_path), *tls).stderr
    assert f"--http-cert {tmp_path / 'c.pem'} --http-key {tmp_path / 'k.pem'}" in told


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working directory')")
    ended = subprocess.run(
        [sys.executable, "-P", str(background._PROGRAM), "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def settled(name: str, number: int, level: str = "info") -> Frame:
    return log(f"{name} settled", level, module=name, number=number, of=2)


def test_up_is_0_when_every_eager_module_is_ready(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fleet = status(module(), module("kv", state="down", start="lazy", instances=[]))
    serve(answers(waiting=(settled("dice", 1),), answer=fleet))
    pretend_to_start(monkeypatch)
    ended = run("up", str(tmp_path))
    assert ended.exit_code == 0
    assert ended.stderr == "dice settled\n"
    assert ended.stdout.startswith("stdiod is up (pid 99, socket /run/s): 1 of 1 module ready in ")
    assert ended.stdout.endswith(", 1 lazy\n")


def test_up_tells_what_is_being_prepared_and_does_not_count_it(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    preparing = log("dice is preparing", "debug", module="dice", state="preparing")
    serve(answers(waiting=(preparing, settled("dice", 1)), answer=status(module())))
    pretend_to_start(monkeypatch)
    ended = run("up", str(tmp_path))
    assert ended.stderr == "dice is preparing\ndice settled\n"
    assert "1 of 1 module ready" in ended.stdout


def test_up_tells_once_of_each_module_that_is_not_ready_the_cause_first_and_of_the_quarantined(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    died = last_exit("exited with code 3", stderr_tail=["Cannot find module 'x'"])
    fleet = status(
        module(),
        module("kv", state="backoff", next_retry_s=2.0, instances=[], last_exit=died),
        module("late", state="down", wanted="up", instances=[], waits_for=["kv"]),
        module("slow", state="starting", instances=[]),
        module("isl", state="backoff", instances=[]),
        quarantined=({"descriptor": "/modules/bad.json", "reason": "/kind: is missing"},),
    )
    failing = (settled("kv", 2, "warn"), settled("late", 3, "warn"))
    serve(answers(waiting=(settled("dice", 1), *failing), answer=fleet))
    pretend_to_start(monkeypatch)
    ended = run("up", str(tmp_path))
    assert ended.exit_code == 1
    assert ended.stderr.splitlines() == [
        "dice settled",
        "kv: exited with code 3: Cannot find module 'x'; next try in 2.0s (backoff)",
        "late: waits for kv (down)",
        "slow is starting",
        "isl is in backoff",
        "/modules/bad.json is quarantined: /kind: is missing",
    ]
    assert "1 of 5 modules ready" in ended.stdout


def test_up_shows_what_a_module_that_serves_printed_beside_its_answers(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (instance,) = module()["instances"]
    fleet = status(module(instances=[{**instance, "warning": "the line is not JSON: hello"}]))
    serve(answers(waiting=(settled("dice", 1),), answer=fleet))
    pretend_to_start(monkeypatch)
    ended = run("up", str(tmp_path))
    assert ended.exit_code == 0
    assert "warning: dice: the line is not JSON: hello" in ended.stderr.splitlines()


def test_up_with_json_prints_the_status_and_nothing_else(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(answers(waiting=(settled("dice", 1),), answer=status(module())))
    pretend_to_start(monkeypatch)
    ended = run("up", str(tmp_path), "--json")
    assert json.loads(ended.stdout) == status(module())
    assert ended.stderr == ""


def pretend_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the fake daemon for the one that was started."""
    monkeypatch.setattr(up_verb, "_refuse_second", lambda *_: None)
    monkeypatch.setattr(background, "start", lambda *arguments: 99)


def test_up_says_where_it_found_no_descriptors(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(answers(answer=status()))
    pretend_to_start(monkeypatch)
    assert "no descriptors in /modules: looked for" in run("up", str(tmp_path)).stderr


def test_up_without_a_module_says_so_and_counts_what_is_quarantined(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bad = {"descriptor": "/modules/bad.json", "reason": "/kind: is missing"}
    serve(answers(answer=status(quarantined=(bad,))))
    pretend_to_start(monkeypatch)
    ended = run("up", str(tmp_path))
    assert ended.exit_code == 0
    assert ended.stderr == "/modules/bad.json is quarantined: /kind: is missing\n"
    assert ended.stdout == (
        "stdiod is up (pid 99, socket /run/s): no modules, 1 descriptor quarantined\n"
    )


def test_up_with_lazy_modules_only_counts_those(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve(answers(answer=status(module("kv", state="down", start="lazy", instances=[]))))
    pretend_to_start(monkeypatch)
    assert run("up", str(tmp_path)).stdout == "stdiod is up (pid 99, socket /run/s): 1 lazy\n"


def test_the_default_places_are_the_environments_else_the_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("STDIOD_SOCKET", "STDIOD_DATA_DIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_socket().name == "stdiod.sock"
    assert default_data_dir() == tmp_path / ".local/state/stdiod"
    monkeypatch.setenv("STDIOD_SOCKET", "/here/s")
    monkeypatch.setenv("STDIOD_DATA_DIR", "/here/d")
    assert default_socket() == Path("/here/s")
    assert default_data_dir() == Path("/here/d")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_down_tells_which_modules_are_down_and_returns_when_the_daemon_is_gone(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(
            "supervisor.cli.client.DaemonClient.daemon_pid", lambda client: process.pid
        )

        def script(frame: Frame) -> list[Reply] | None:
            match frame["input"]["op"]:
                case "status":
                    return [ok(status(module(), module("torch", instances=[])))]
                case "wait":
                    assert frame["input"]["args"] == {"modules": ["dice"], "for": "down"}
                    return []
                case _:
                    process.send_signal(signal.SIGTERM)
                    bye = {**log("dice is down", number=1), "requestId": "c2"}
                    daemon.close_after_reply = True
                    return [ok({"pid": process.pid}), bye]

        daemon = serve(script)
        ended = run("down", *options)
        assert ended.exit_code == 0, ended.output
        if options:
            assert (json.loads(ended.stdout), ended.stderr) == ({"pid": process.pid}, "")
            return
        assert ended.stderr == "dice is down\n"
        assert ended.stdout.startswith(f"stdiod is down (pid {process.pid}), in ")


def test_down_says_so_if_the_daemon_is_still_there(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.cli.verbs.daemon.GONE_S", 0.1)
    serve(answers(answer=status()))
    ended = run("down")
    assert ended.exit_code == 1
    assert ended.stderr == "stdiod: the daemon (pid 99) still runs after 0.1 s\n"


@pytest.mark.parametrize("on_terminal", [True, False])
def test_on_a_terminal_a_foreground_daemon_says_first_what_it_is(
    tmp_path: Path, *, on_terminal: bool
) -> None:
    (tmp_path / "modules").mkdir()
    places = [f"--{one}={tmp_path / one}" for one in ("socket", "data-dir")]
    command = [sys.executable, "-m", "supervisor.cli", "run", str(tmp_path / "modules")]
    reader, writer = pty.openpty() if on_terminal else os.pipe()
    process = subprocess.Popen([*command, *places, "--http", "off"], stderr=writer)
    os.close(writer)
    try:
        said = os.read(reader, 4096).decode()
    finally:
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            try:
                os.read(reader, 4096)
            except OSError:
                process.wait()
        os.close(reader)
    assert said.startswith("stdiod: this is the daemon, in the foreground") is on_terminal
