"""Start, stop, restart, reload, removal and return of a module, all at once, a hundred times."""

from __future__ import annotations

import json
import random

import pytest

from tests.system.conftest import StartDaemon
from tests.system.descriptors import misbehaving, timeouts
from tests.system.liveness import Liveness

BRIEF = timeouts(exit_s=0.2, stop_s=0.2)


@pytest.mark.fault(12)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_commands_reloads_and_removals_at_once_leave_one_incarnation(
    start_daemon: StartDaemon, liveness: Liveness, seed: int
) -> None:
    env = {"LIVENESS": str(liveness.path)}
    # Where a successor may run beside the module, two of it are right for a moment.
    one = misbehaving("one", env=env, timeouts=BRIEF, overlap=False)
    daemon = start_daemon(one, misbehaving("witness"))
    witness, path = daemon.pid("witness"), daemon.modules / "one.json"
    drawn = random.Random(seed)  # the order is odd, and the same each time
    ops = ["start", "stop", "restart", "reload", "change", "remove", "return", "invoke", "crash"]
    with daemon.connect() as client:
        asked = []
        for step in range(100):
            alive = [member for member in liveness.take_in() if member.role == "module"]
            assert len(alive) <= 1, alive
            match drawn.choice(ops):
                case "change":
                    path.write_text(json.dumps({**one, "description": str(step)}))
                case "remove":
                    path.unlink(missing_ok=True)
                case "return":
                    path.write_text(json.dumps(one))
                case "invoke":
                    asked.append(client.send_invoke("one"))
                case "crash":
                    asked.append(client.send_invoke("one", fault="exit", code=3))
                case "reload":
                    asked.append(client.send("supervisor", "invoke", {"op": "reload", "args": {}}))
                case op:
                    content = {"op": op, "args": {"module": "one"}}
                    asked.append(client.send("supervisor", "invoke", content))
            if drawn.random() < 0.2 and asked:
                client.answer(asked.pop(0))
        for request_id in asked:
            client.answer(request_id)  # each is answered once, one way or the other
    path.write_text(json.dumps({**one, "description": "the last"}))
    daemon.op("reload")
    daemon.op("restart", module="one")
    assert daemon.invoke("one", word="hello").result == {"word": "hello"}
    (survivor,) = [member for member in liveness.take_in() if member.role == "module"]
    assert survivor.pid == daemon.pid("one")
    assert sorted(daemon.processes()) == sorted([survivor.pid, witness])
    # Generations only go up, and each instance was one process.
    lived = [member.instance for member in liveness.members if member.role == "module"]
    assert len(lived) == len(set(lived))
    assert daemon.pid("witness") == witness
