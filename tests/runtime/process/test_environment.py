from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.runtime.process.environment import UnsetVariableError, module_environment
from tests.factories import descriptor

HOST = {
    "PATH": "/bin",
    "HOME": "/home/me",
    "LANG": "C",
    "LC_ALL": "C",
    "XDG_RUNTIME_DIR": "/run/me",
    "TZ": "UTC",
    "AWS_SECRET": "hush",
    "LD_PRELOAD": "evil.so",
    "PATHS": "not PATH",
}


def environment(folder: Path, host: dict[str, str] = HOST, **transport: Any) -> dict[str, str]:
    made = descriptor(folder, ["x"], transport=transport).transport
    return module_environment(made, host, "m#1")


def test_only_the_allowed_variables_and_the_instances_name_are_passed_on(tmp_path: Path) -> None:
    allowed = {
        name: HOST[name] for name in HOST if name not in ("AWS_SECRET", "LD_PRELOAD", "PATHS")
    }
    assert environment(tmp_path) == {**allowed, "STDIOD_INSTANCE": "m#1"}


def test_pass_env_passes_on_what_it_names_and_nothing_that_is_not_set(tmp_path: Path) -> None:
    passed = environment(tmp_path, pass_env=["AWS_SECRET", "NOT_THERE"])
    assert passed["AWS_SECRET"] == "hush"
    assert "NOT_THERE" not in passed
    assert "LD_PRELOAD" not in passed


def test_env_sets_variables_and_may_refer_to_the_daemons_own(tmp_path: Path) -> None:
    env = {"A": "x${HOME}y${TZ}", "B": "$HOME ${} $ {HOME}", "PATH": "/opt:${PATH}"}
    passed = environment(tmp_path, env=env)
    assert (passed["A"], passed["B"], passed["PATH"]) == (
        "x/home/meyUTC",
        "$HOME ${} $ {HOME}",
        "/opt:/bin",
    )


def test_what_a_reference_brings_in_is_not_expanded_again(tmp_path: Path) -> None:
    assert environment(tmp_path, {"A": "${B}", "B": "b"}, env={"C": "${A}"})["C"] == "${B}"


def test_a_reference_to_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsetVariableError, match=r"transport\.env\.KEY uses \$\{GONE\}"):
        environment(tmp_path, env={"KEY": "${GONE}"})


def test_env_wins_over_pass_env_but_not_over_the_instances_name(tmp_path: Path) -> None:
    env = {"AWS_SECRET": "mine", "STDIOD_INSTANCE": "other"}
    passed = environment(tmp_path, pass_env=["AWS_SECRET"], env=env)
    assert passed["AWS_SECRET"] == "mine"
    assert passed["STDIOD_INSTANCE"] == "m#1"
