"""Of `test_architecture.py`, what is bound to the structure."""

from __future__ import annotations

import re

import pytest

from supervisor.kernel.kernel import Client
from supervisor.runtime.supervision.call import Listener
from supervisor.runtime.supervision.fleet import Fleet
from supervisor.runtime.supervision.module import Module
from supervisor.runtime.supervision.worker import Worker
from tests.docs.markdown import read


def told_upwards(told: type) -> set[str]:
    label = re.search(rf'-\. "{told.__name__}: ([\w, ]+)"', read("docs/architecture.md"))
    assert label is not None
    return set(label[1].split(", "))


@pytest.mark.parametrize("interface", [Client, Listener])
def test_the_picture_of_the_house_names_what_is_told_upwards(interface: type) -> None:
    assert told_upwards(interface) == {
        name for name, one in vars(interface).items() if not name.startswith("_") and callable(one)
    }


@pytest.mark.parametrize("told", [Worker, Module, Fleet])
def test_what_the_picture_of_the_house_says_is_told_to_a_class_is_there(told: type) -> None:
    assert told_upwards(told) <= vars(told).keys()
