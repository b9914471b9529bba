"""A folder with a `stdiod.toml`: whose daemon a verb speaks with, and what trust is."""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from supervisor.cli import background
from supervisor.cli import project as project_file
from supervisor.cli.command_line import stdiod
from supervisor.cli.machine import examine_project
from supervisor.cli.project import FILE, Project, TrustState
from supervisor.daemon import project_trust
from supervisor.daemon.project_trust import STORE, objection, trusted_projects
from supervisor.daemon.serve import ServeOptions
from supervisor.kernel.grants.operator_policy import OperatorPolicy
from supervisor.policy.policy_file import PolicyError
from tests.cli.fake_daemon import FakeDaemon, module, ok, serving, status

Type = Callable[..., Result]
ServeAt = Callable[[Path], FakeDaemon]

GOOD = 'directories = ["modules"]\n'
UNTRUSTED = "is not trusted, and not used: read it, then `stdiod trust`"


@pytest.fixture
def home(socket_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be a user with a home, who stands in it and has named no socket."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("STDIOD_SOCKET", "STDIOD_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(socket_path.parent))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def shop(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder of a project that nobody has trusted."""
    folder = made(home / "shop")
    monkeypatch.chdir(folder)
    return folder


def made(folder: Path, text: str = GOOD) -> Path:
    (folder / "modules").mkdir(parents=True)
    (folder / FILE).write_text(text)
    return folder


@pytest.fixture
def typed(home: Path) -> Type:
    def typed(*words: str) -> Result:
        return CliRunner().invoke(stdiod, words, prog_name="stdiod")

    return typed


@pytest.fixture
def serve_at() -> Iterator[ServeAt]:
    with ExitStack() as stack:

        def serve_at(socket: Path) -> FakeDaemon:
            socket.parent.mkdir(parents=True, exist_ok=True)
            return stack.enter_context(serving(socket, lambda frame: [ok(status(module()))]))

        yield serve_at


@pytest.fixture
def users_daemon(home: Path, serve_at: ServeAt) -> FakeDaemon:
    return serve_at(Path(os.environ["XDG_RUNTIME_DIR"]) / "stdiod" / "stdiod.sock")


def of(folder: Path) -> Project:
    return Project(folder, TrustState.TRUSTED)


def test_without_trust_the_file_is_not_read_and_the_users_daemon_is_asked(
    shop: Path, typed: Type, users_daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    for module_, name in ((os, "open"), (io, "open")):
        monkeypatch.setattr(module_, name, noting(getattr(module_, name), opened))
    ended = typed("status")
    assert ended.exit_code == 0
    assert ended.stderr == f"stdiod: {shop}/{FILE} {UNTRUSTED}\n"
    assert len(users_daemon.frames) == 1
    assert not [one for one in opened if str(shop) in str(one)]


def noting(real: Callable[..., object], opened: list[object]) -> Callable[..., object]:
    def note(path: object, *arguments: object, **options: object) -> object:
        opened.append(path)
        return real(path, *arguments, **options)

    return note


@pytest.mark.parametrize("below", ["", "modules"])
def test_once_trusted_its_daemon_is_asked_from_its_folder_and_below(
    *,
    below: str,
    shop: Path,
    typed: Type,
    users_daemon: FakeDaemon,
    serve_at: ServeAt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert typed("trust").exit_code == 0
    daemon = serve_at(of(shop).socket)
    monkeypatch.chdir(shop / below)
    ended = typed("status")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert (len(daemon.frames), len(users_daemon.frames)) == (1, 0)


@pytest.mark.parametrize("changed", [FILE, "policy.toml"])
def test_a_project_that_has_changed_keeps_its_daemon_and_gets_no_new_one(
    changed: str, shop: Path, typed: Type, users_daemon: FakeDaemon, serve_at: ServeAt
) -> None:
    (shop / FILE).write_text(f'{GOOD}policy = "policy.toml"')
    (shop / "policy.toml").write_text("")
    assert typed("trust").exit_code == 0
    (shop / changed).write_text((shop / changed).read_text() + "# new\n")
    words = f"stdiod: {shop}/{changed} has changed since it was trusted: read it, then"
    for verb in (("up",), ("up", "modules"), ("run",), ("mcp",)):
        ended = typed(*verb)
        assert ended.exit_code == 1
        assert ended.stderr.startswith(words)
        assert ended.stderr.endswith(f"no daemon is started for {shop} before `stdiod trust`\n")
    daemon = serve_at(of(shop).socket)
    ended = typed("status")
    assert ended.exit_code == 0
    assert ended.stderr.startswith(words)
    assert (len(daemon.frames), len(users_daemon.frames)) == (1, 0)
    assert typed("trust").exit_code == 0
    assert typed("status").stderr == ""


def test_what_is_trusted_is_private_and_outside_of_the_project(shop: Path, typed: Type) -> None:
    typed("trust")
    store = Path(os.environ["XDG_STATE_HOME"]) / "stdiod" / STORE
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert list(json.loads(store.read_bytes())) == [str(shop)]
    assert [one.name for one in store.parent.iterdir()] == [STORE]
    assert sorted(one.name for one in shop.iterdir()) == ["modules", FILE]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda store: store.chmod(0o666), "others may write to it"),
        (lambda store: store.write_text("{"), "it is not what `stdiod trust` writes"),
        (lambda store: store.write_text('{"x": 1}'), "it is not what `stdiod trust` writes"),
        (lambda store: (store.unlink(), store.mkdir()), "it cannot be read: Is a directory"),
    ],
)
def test_a_list_of_trusted_projects_that_cannot_be_relied_on_trusts_nothing(
    shop: Path, typed: Type, spoil: Callable[[Path], object], words: str
) -> None:
    typed("trust")
    spoil(Path(os.environ["XDG_STATE_HOME"]) / "stdiod" / STORE)
    ended = typed("status")
    assert ended.exit_code == 3
    said = ended.stderr.splitlines()
    assert said[0].startswith("stdiod: the list of trusted projects cannot be used: ")
    assert said[0].endswith(words)
    assert said[1] == f"stdiod: {shop}/{FILE} {UNTRUSTED}"
    for verb in ("--list", "--revoke"):
        ended = typed("trust", verb)
        assert ended.exit_code == 1
        assert words in ended.stderr


def test_revoking_ends_trust_and_leaves_the_daemon(
    shop: Path, typed: Type, users_daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed("trust")
    monkeypatch.chdir(shop / "modules")
    ended = typed("trust", "--revoke")
    assert (ended.exit_code, ended.stdout) == (0, f"{shop} is no longer trusted\n")
    assert UNTRUSTED in typed("status").stderr
    ended = typed("trust", "--revoke")
    assert ended.exit_code == 1
    assert "is in no project that is trusted" in ended.stderr


def test_the_list_tells_of_what_has_changed_and_what_is_gone(
    home: Path, typed: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("well", "changed", "gone"):
        assert typed("trust", str(made(home / name))).exit_code == 0
    (home / "changed" / FILE).write_text(GOOD + "watch = false")
    (home / "gone" / FILE).unlink()
    said = typed("trust", "--list").stdout.splitlines()
    assert said[0].startswith(f"{home}/well  since 20")
    assert said[0].endswith("UTC")
    assert said[1].endswith(f"; {home}/changed/{FILE} has changed since")
    assert said[2].endswith(f"; {home}/gone/{FILE} cannot be looked at: No such file or directory")
    (well, _, _) = json.loads(typed("trust", "--list", "--json").stdout)["projects"]
    assert well["socket"] == str(of(home / "well").socket)
    assert well["problem"] is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "",
            ': directories: is missing; say where the modules are: directories = ["modules"]',
        ),
        ("directories = ", ':1: is not TOML: Invalid value, in "directories ="'),
        (GOOD + "wach = 1", ": wach: there is no such key; did you mean 'watch'?"),
        (
            GOOD + "\nsocket = 's'",
            ": socket: a project has its own, which its path decides; leave it out",
        ),
        (GOOD + 'policy = "policy.toml"', "policy.toml: cannot be read: No such file"),
    ],
)
def test_what_is_broken_is_not_trusted_and_told_with_its_key(
    shop: Path, typed: Type, text: str, words: str
) -> None:
    (shop / FILE).write_text(text)
    ended = typed("trust")
    assert ended.exit_code == 1
    assert ended.stderr.startswith("stdiod: nothing is trusted:\n")
    assert words in ended.stderr
    assert not trusted_projects().read()


def test_what_is_odd_in_a_project_is_told_when_it_is_trusted(shop: Path, typed: Type) -> None:
    (shop / FILE).write_text('directories = ["modules", "gone"]\npolicy = "policy.toml"')
    (shop / "policy.toml").write_text('allow = ["fly"]\n')
    ended = typed("trust")
    assert ended.exit_code == 0
    assert f"{shop / 'gone'} is not a directory yet" in ended.stderr
    assert "policy.toml: allow[0]: " in ended.stderr
    assert "unknown capability" in ended.stderr


def test_where_there_is_no_project_trust_says_what_one_is(home: Path, typed: Type) -> None:
    ended = typed("trust")
    assert ended.exit_code == 1
    assert f"there is no {FILE} of yours in {home} or above" in ended.stderr


def test_the_home_folder_and_the_root_are_no_projects(
    home: Path, typed: Type, users_daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / FILE).write_text(GOOD)
    (home / "sub").mkdir()
    for folder in (home, home / "sub"):
        monkeypatch.chdir(folder)
        assert typed("status").stderr == ""
    ended = typed("trust", str(home))
    assert ended.exit_code == 1
    assert "it would be that of every folder below; `--config" in ended.stderr
    assert project_file.is_shared(Path("/"))


def as_pipe(shop: Path) -> None:
    (shop / FILE).unlink()
    os.mkfifo(shop / FILE)


def as_broken_link(shop: Path) -> None:
    (shop / FILE).unlink()
    (shop / FILE).symlink_to("gone")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda shop: (shop / FILE).chmod(0o666), f"{FILE} may be written to by everybody"),
        (lambda shop: shop.chmod(0o777), "shop may be written to by everybody"),
        (as_pipe, f"{FILE} is not a regular file"),
        (as_broken_link, f"{FILE} cannot be looked at: No such file or directory"),
    ],
)
def test_a_file_that_others_could_have_made_is_ignored_with_a_word(
    shop: Path,
    typed: Type,
    users_daemon: FakeDaemon,
    spoil: Callable[[Path], object],
    words: str,
) -> None:
    typed("trust")
    spoil(shop)
    ended = typed("status")
    assert ended.exit_code == 0
    assert ended.stderr.endswith(f"{words}; it is ignored\n")
    assert len(users_daemon.frames) == 1
    assert typed("trust").exit_code == 1


def test_a_file_of_another_user_is_ignored_with_a_word(
    shop: Path, typed: Type, users_daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    ended = typed("status")
    assert ended.exit_code == 0
    assert f"{FILE} belongs to " in ended.stderr
    assert ended.stderr.endswith("; it is ignored\n")


def test_a_link_is_as_good_as_a_file_and_its_folder_is_that_of_the_link(
    shop: Path, typed: Type, home: Path
) -> None:
    (shop / FILE).rename(home / "elsewhere.toml")
    (shop / FILE).symlink_to(home / "elsewhere.toml")
    assert f"directories {shop}/modules\n" in typed("trust").stdout
    (home / "elsewhere.toml").write_text(GOOD + "watch = false\n")
    assert f"{shop}/{FILE} has changed" in typed("status").stderr


def test_a_folder_is_known_by_its_real_path(
    shop: Path, home: Path, typed: Type, serve_at: ServeAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "link").symlink_to(shop)
    assert typed("trust", str(home / "link")).exit_code == 0
    serve_at(of(shop).socket)
    monkeypatch.chdir(home / "link")
    assert typed("status").exit_code == 0


def test_the_nearest_project_hides_the_one_around_it(
    shop: Path,
    typed: Type,
    users_daemon: FakeDaemon,
    serve_at: ServeAt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed("trust")
    outer = serve_at(of(shop).socket)
    inner = made(shop / "modules" / "inner")
    monkeypatch.chdir(inner)
    assert f"{inner}/{FILE} {UNTRUSTED}" in typed("status").stderr
    assert (len(outer.frames), len(users_daemon.frames)) == (0, 1)
    (inner / FILE).chmod(0o666)
    assert "it is ignored" in typed("status").stderr
    assert (len(outer.frames), len(users_daemon.frames)) == (1, 1)


def test_a_socket_that_is_named_is_asked_and_nothing_is_said_of_the_project(
    shop: Path, typed: Type, serve_at: ServeAt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = Path(os.environ["XDG_RUNTIME_DIR"]) / "other"
    daemon = serve_at(socket)
    assert typed("--socket", str(socket), "status").stderr == ""
    monkeypatch.setenv("STDIOD_SOCKET", str(socket))
    assert typed("status").stderr == ""
    assert len(daemon.frames) == 2


def test_a_folder_that_is_gone_is_in_no_project(
    shop: Path, typed: Type, users_daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "away").mkdir()
    monkeypatch.chdir(shop / "away")
    (shop / "away").rmdir()
    ended = typed("status")
    assert (ended.exit_code, ended.stderr) == (0, "")


def test_a_daemon_of_a_trusted_project_is_what_its_file_says(
    shop: Path, typed: Type, served: list[ServeOptions]
) -> None:
    (shop / FILE).write_text(GOOD + "watch = false")
    typed("trust")
    assert typed("run").exit_code == 0
    (options,) = served
    assert options.project == shop
    assert options.directories == (shop / "modules",)
    assert options.socket == of(shop).socket
    assert options.data_dir == of(shop).data_dir
    assert options.watch is False


def test_the_command_line_wins_over_the_project(
    shop: Path, home: Path, typed: Type, served: list[ServeOptions]
) -> None:
    typed("trust")
    (home / "other.toml").write_text("log_format = 'json'")
    words = ["--socket", "/tmp/s", "--data-dir", "/tmp/d", "--config", str(home / "other.toml")]
    assert typed("run", str(home), *words).exit_code == 0
    (options,) = served
    assert (options.socket, options.data_dir) == (Path("/tmp/s"), Path("/tmp/d"))
    assert options.directories == (home,)


def test_without_trust_a_directory_that_is_named_is_for_the_users_daemon(
    shop: Path, typed: Type, served: list[ServeOptions]
) -> None:
    ended = typed("run")
    assert ended.exit_code == 1
    assert f"no daemon is started for {shop} before `stdiod trust`" in ended.stderr
    assert typed("run", "modules").exit_code == 0
    (options,) = served
    assert options.project is None
    assert options.socket.name == "stdiod.sock"
    assert "projects" not in options.socket.parts


def test_up_starts_a_daemon_elsewhere_as_that_of_the_project(
    shop: Path, typed: Type, served: list[ServeOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` starts `run` in `/`, where it would find no project."""
    started: list[list[str]] = []

    def start(arguments: list[str], data_dir: Path) -> int:
        started.append(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(background, "start", start)
    typed("trust")
    for verb in ("up", "mcp"):
        assert typed(verb).exit_code == 130
    monkeypatch.chdir("/")
    for arguments in started:
        assert typed("run", *arguments).exit_code == 0
    assert [one.project for one in served] == [shop, shop]
    assert [one.directories for one in served] == [(shop / "modules",)] * 2
    # Between the two, somebody changes the file: what is parsed is what was trusted, or nothing.
    (shop / FILE).write_text('directories = ["/"]')
    assert typed("run", *started[0]).exit_code == 1


def test_the_unit_of_a_service_runs_the_daemon_that_up_starts(
    shop: Path, typed: Type, served: list[ServeOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = typed("service", "install", "--print")
    assert (refused.exit_code, "before `stdiod trust`" in refused.stderr) == (1, True)
    typed("trust")
    for words in ([], ["--config", FILE], ["modules"]):
        unit = typed("service", "install", "--print", *words).stdout
        (command,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir("/")
            assert typed(*command.split()[1:]).exit_code == 0
    assert typed("run").exit_code == 0  # what `up` starts here
    seen = {(one.socket, one.data_dir, one.project, one.directories) for one in served}
    assert seen == {(of(shop).socket, of(shop).data_dir, shop, (shop / "modules",))}


def test_a_policy_counts_with_the_bytes_that_were_trusted(shop: Path, typed: Type) -> None:
    policy = shop / "policy.toml"
    (shop / FILE).write_text(GOOD + 'policy = "policy.toml"')
    policy.write_text('allow = ["log"]')
    typed("trust")
    operator = OperatorPolicy(policy, lambda data: objection(shop, policy, data))
    before = operator.policy
    policy.write_text('allow = ["log", "module.invoke"]')
    operator = looked_at(operator)
    assert operator.policy == before
    assert operator.problem is not None
    assert "has changed since its project was trusted" in operator.problem
    typed("trust")
    operator = looked_at(operator)
    assert operator.policy != before
    assert operator.problem is None
    typed("trust", "--revoke")
    with pytest.raises(PolicyError, match="is no longer trusted"):
        OperatorPolicy(policy, lambda data: objection(shop, policy, data))


def looked_at(operator: OperatorPolicy) -> OperatorPolicy:
    operator.take(operator.look())
    return operator


def test_a_policy_that_the_command_line_names_is_no_part_of_the_project(
    shop: Path, typed: Type, home: Path
) -> None:
    typed("trust")
    assert objection(shop, home / "mine.toml", b"anything") is None


def test_each_verb_says_whose_daemon_it_is(shop: Path, typed: Type) -> None:
    typed("trust")
    of(shop).socket.parent.mkdir(parents=True)
    answer: dict[str, Any] = status(module())
    answer["daemon"]["project"] = str(shop)
    with serving(of(shop).socket, lambda frame: [ok(answer)]):
        first = typed("status").stdout.splitlines()[0]
    assert first.startswith(f"stdiod 0.1.0 of {shop}, pid ")
    ended = typed("status")
    assert ended.exit_code == 3
    assert ended.stderr.endswith("; `stdiod up` starts one\n")


@pytest.mark.parametrize(
    ("standing", "level", "words"),
    [
        (TrustState.TRUSTED, "ok", "is trusted"),
        (TrustState.UNTRUSTED, "warn", UNTRUSTED),
        (TrustState.CHANGED, "warn", "has changed since it was trusted"),
    ],
)
def test_doctor_says_whether_the_project_counts(
    shop: Path, standing: TrustState, level: str, words: str
) -> None:
    finding = examine_project(Project(shop, standing, str(shop / FILE)))
    assert finding.level == level
    assert words in finding.message


def test_trusted_folders_are_completed(shop: Path, typed: Type) -> None:
    typed("trust")
    shell = ShellComplete(stdiod, {}, "stdiod", "_STDIOD_COMPLETE")
    found = [one.value for one in shell.get_completions(["trust"], str(shop)[:-1])]
    assert str(shop) in found


def test_the_number_of_bytes_that_are_read_has_a_bound(shop: Path, typed: Type) -> None:
    typed("trust")
    with (shop / FILE).open("wb") as file:
        file.truncate(project_trust.PROJECT_FILE_BYTES + 1)
    assert "has changed since it was trusted" in typed("status").stderr
