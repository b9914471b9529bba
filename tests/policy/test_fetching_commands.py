"""A command that fetches comes to one that only fetches, and one that only runs."""

from __future__ import annotations

import pytest

from supervisor.policy.fetching_commands import fetched

NOTHING = "python -c pass"
INSPECT = '"$0" image inspect "$1" >/dev/null 2>&1 || exec "$0" pull "$@"'


@pytest.mark.parametrize(
    ("command", "prepare", "then"),
    [
        ("npx x", "npx --yes --package=x -- true", "npx --offline x"),
        ("/usr/bin/npx -y x@1 /tmp", "/usr/bin/npx --yes --package=x@1 -- true",
         "/usr/bin/npx --offline -y x@1 /tmp"),
        ("npx -p x -p y@2 bin -y", "npx --yes --package=x --package=y@2 -- true",
         "npx --offline -p x -p y@2 bin -y"),
        ("npx --registry=http://r -y -- x --flag",
         "npx --yes --registry=http://r --package=x -- true",
         "npx --offline --registry=http://r -y -- x --flag"),
        ("uvx x --a", f"uvx --from x {NOTHING}", "uvx --offline x --a"),
        ("uvx -p 3.12 --with z --from x[cli] run",
         f"uvx --python=3.12 --with=z --from x[cli] {NOTHING}",
         "uvx --offline -p 3.12 --with z --from x[cli] run"),
        ("uv tool run x@1.0", f"uv tool run --from x@1.0 {NOTHING}",
         "uv tool run --offline x@1.0"),
        ("pipx run x --a", f"pipx run --spec x {NOTHING}", "pipx run x --a"),
        ("pipx run --python 3.12 --spec x==1 y", f"pipx run --python=3.12 --spec x==1 {NOTHING}",
         "pipx run --python 3.12 --spec x==1 y"),
    ],
)  # fmt: skip
def test_each_has_its_own_way(command: str, prepare: str, then: str) -> None:
    found = fetched(command.split())
    assert found is not None
    assert found.prepare == prepare.split()
    assert found.command == then.split()


@pytest.mark.parametrize(
    ("words", "pulled", "then"),
    [
        ("-i --rm -e TOKEN mcp/x", "mcp/x", "-i --rm -e TOKEN mcp/x"),
        ("-it -eA=1 --mount type=bind,src=/a,dst=/b --init mcp/x:2 -i /b", "mcp/x:2",
         "-it -eA=1 --mount type=bind,src=/a,dst=/b --init mcp/x:2 -i /b"),
        ("-i --platform linux/arm64 mcp/x", "mcp/x --platform=linux/arm64",
         "-i --platform linux/arm64 mcp/x"),
        ("-i --pull always -v /a:/b mcp/x", "mcp/x", "-i -v=/a:/b mcp/x"),
    ],
)  # fmt: skip
def test_an_image_is_pulled_unless_it_is_there(words: str, pulled: str, then: str) -> None:
    found = fetched(["docker", "run", *words.split()])
    assert found is not None
    assert found.prepare == ["sh", "-c", INSPECT, "docker", *pulled.split()]
    assert found.command == ["docker", "run", "--pull=never", *then.split()]


@pytest.mark.parametrize(
    "command",
    [
        "python3 npx", "npx", "npx ./here", "npx -y", "npx --new-option x", "npx --package",
        "npx --ignore-existing x", "uvx", "uvx python", "uvx --refresh x", "uvx --no-cache x",
        "uvx --preview x", "uv run x", "uv --directory /a run x", "pipx", "pipx install x",
        "pipx run --path x", "docker", "docker compose up", "docker run -i", "bunx x",
    ],
)  # fmt: skip
def test_what_is_not_known_for_certain_is_left_alone(command: str) -> None:
    assert fetched(command.split()) is None
