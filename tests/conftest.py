"""What all tests share: markers, logging of its own, and a look at what daemons wrote down.

The markers tie a test to a clause or a fault.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

from protocol.dialects.registry import DIALECTS
from supervisor.runtime.containment import guardianship
from tests import factories, journals, shell_guardian
from tests.dialects.registry import FAKES
from tests.system import forked

pytest_plugins = ["tests.bounds"]

IGNORED_BY_LAUNCHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""What `nohup`, and a shell that starts something in the background, have their child ignore."""


# A machine that is busy is no fault of a test. Each run draws other examples, and most properties
# are told of each dialect and lifecycle: a few of each, many times a day, find more than many of
# each now and then. `--hypothesis-profile thorough` is for who has changed what is told. An
# explanation would have each line traced while a failing example is made smaller: a test passed its
# bound so, and the example was never shown.
for profile, examples in ("on_any_machine", 40), ("thorough", 1000):
    settings.register_profile(
        profile,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )
settings.load_profile("on_any_machine")


def pytest_configure(config: pytest.Config) -> None:
    # An ignored signal is inherited by every process that a test starts.
    for number in IGNORED_BY_LAUNCHERS:
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
    # `python3` is the Python of the tests: a version manager's would be a shell program that takes
    # longer than most modules.
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), path])
    # As in the Makefile: without what has been compiled, a daemon takes twice as long to start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    config.addinivalue_line(
        "markers", "clause(id): the test holds this clause of tests/conformance/clauses.py"
    )
    config.addinivalue_line(
        "markers", "fault(number, ...): the test holds these rows of tests/faults/rows.py"
    )


def pytest_unconfigure() -> None:
    forked.end()


@pytest.fixture(autouse=True, scope="session")
def _guardian_in_a_shell() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(guardianship, "command", shell_guardian.command)
        yield


@pytest.fixture(autouse=True)
def _processes_of_its_own() -> None:
    factories.disown_children()


@pytest.fixture(autouse=True)
def _logging_of_its_own() -> Iterator[None]:
    """Let structlog be as a test configured it for that test only.

    A verb that runs within the test configures it for the whole process. Loggers are not cached:
    one that was would keep that configuration, whatever is configured after it.
    """
    configure = structlog.configure

    def configure_uncached(**options: Any) -> None:
        configure(**{**options, "cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(structlog, "configure", configure_uncached)
        yield
    structlog.reset_defaults()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Hold each journal that a daemon of the test left to what is promised of journals."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    yield  # by now the daemons have ended
    if folder is not None:
        journals.check_all(folder)


@pytest.fixture
def made_up_dialects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let descriptors name the made-up dialects (tests/dialects)."""
    for name, dialect in FAKES.items():
        monkeypatch.setitem(DIALECTS, name, dialect)
