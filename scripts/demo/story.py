"""What the demo shows, as a script for the player.

`#` is a heading, `==` a step with the modules that it needs in brackets, `$` a command, as in a
shell, and `!` a function of this file. Under a command stands what it has to print: each line has
to be found, in this order, with anything between them. In a line, `...` is anything, and `<name>` a
word that is the same wherever the name stands again, in commands too. A remark says how many lines
are shown, or that the command is tried, unseen, until it prints what it has to.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from jsonschema import Draft202012Validator

import schemas
from protocol.journal_event import lint
from scripts.checkout import wait_gone

if TYPE_CHECKING:
    from scripts.demo.__main__ import Demo

POLICY: Final = "policy.toml"
PLAN: Final = {"goal": 'use dice.roll {"dice":"4d1+3"}', "inputs": {}}
PERSISTENT: Final = ("dice", "textstats", "primes")
"""The first of these that is there is killed."""
AT_ONCE: Final = 64
ANSWERS_WITHIN_S: Final = 30.0
GONE_WITHIN_S: Final = 30.0

BEGIN: Final = """\
# A folder of descriptors becomes a fleet
MISSING
== validate
$ stdiod validate modules
NUMBER descriptor...valid
== up
$ stdiod up modules --data-dir data WITH_POLICY
NUMBER of NUMBER module... ready
== status
$ stdiod status
NUMBER module...: NUMBER ready\n
# Each module says how it is, and what it is
"""
MEET: Final = """\
== health and describe of NAME
$ stdiod health NAME
NAME is well
$ stdiod describe NAME  # 8 lines
NAME VERSION, KIND
CAPABILITIES
"""
STORY: Final = r"""
# Each module does what it is for
== torch light (torch)
$ stdiod invoke torch light --args '{"room":"hall"}'
info   Starting
state  {"flags":{"torchLit":true},"torchRoom":"hall"}
ok     Torch lit.
== chart draw (chart)
$ stdiod invoke chart draw --args '{"title":"Rain","values":{"May":61,"June":48,"July":12}}'
info   Drawing 3 values  style=bar
debug  Wrote <picture>
asset  <picture> (image/svg+xml, image, id chart, asset <asset>)
ok     Drew a bar chart of 3 values.
$ grep -o '<svg\|Rain\|</svg>' <picture>
<svg
Rain
</svg>
== asset list, show and open (chart)
$ stdiod asset list
<asset>  chart  chart   -        image/svg+xml
$ stdiod asset show <asset>
kind      image, image/svg+xml
path      <picture>
made by   chart.draw
metadata  {"width":640,"height":360}
$ stdiod asset open <asset> --print
<picture>
== dice roll (dice)
$ stdiod invoke dice roll --args '{"dice":"3d6+2","seed":7}'
{"rolls": [3, 2, 4], "total": 11}
== textstats stats (textstats)
$ stdiod invoke textstats stats text='Call me Ishmael. Some years ago, I went to sea.'
"characters": 47,
"longest_words": [
"Ishmael",
"years",
"sentences": 2,
"words": 10
== primes factor (primes)
$ stdiod invoke primes factor --args '{"n":1234567890123456789}'
{"n": 1234567890123456789, "factors": [3, 3, 101, 3541, 3607, 3803, 27961]}
== notes add (notes)
$ stdiod invoke notes add text='The key is under the mat.'
{"number": 1}
== notes search (notes)
$ stdiod invoke notes search query=KEY
{"notes": [{"number": 1, "text": "The key is under the mat."}]}
== audit on_event (audit)
$ stdiod invoke audit on_event event=session:start
{}
== audit report (audit)
$ stdiod invoke audit report
"session:start": 1

# A session keeps the state that modules add to
== a session (torch)
$ stdiod session new --id walk --plan '{"goal":"find the way home","inputs":{"from":"hall"}}'
walk
== the torch lit in it (torch)
$ stdiod invoke torch light --session walk room=hall
state  {"flags":{"torchLit":true},"torchRoom":"hall"} (revision 1)
ok     Torch lit.
== what the session has (torch)
$ stdiod session show walk
walk: idle
goal        find the way home
requests    0 in flight, 1 invocation ended
state at revision 1
{"flags": {"torchLit": true}, "torchRoom": "hall"}
== two who change it at the same revision (torch)
$ stdiod session patch walk '{"torchRoom":null}' --if-revision 1
walk has revision 2
$ stdiod session patch walk '{"torchRoom":null}' --if-revision 1
revision_conflict
(exit status 1)
== a fork goes its own way (torch)
$ stdiod session fork walk --id night
night
$ stdiod invoke torch douse --session night
state  {"flags":{"torchLit":false}} (revision 1)
ok     Torch doused.
$ stdiod session show walk
{"flags": {"torchLit": true}}
$ stdiod session show night
{"flags": {"torchLit": false}}
== the end of a session (torch)
$ stdiod session end walk
walk has ended
$ stdiod session list --all
night  idle
walk   ended
$ stdiod invoke torch light --session walk room=hall
torch.light failed: the session 'walk' has ended
(exit status 1)

# Who decides: a policy, a gate, a person
== what the policy says (orchestrator, memory, dice)
$ stdiod policy explain orchestrator module.invoke:dice.roll
orchestrator may module.invoke:dice.roll
$ stdiod policy explain memory module.invoke:dice.roll
memory may not module.invoke:dice.roll
(exit status 1)
== a loop of provider, context and tool (orchestrator, oracle, memory, dice)
$ stdiod session new --id talk
talk
$ stdiod invoke orchestrator execute prompt='use dice.roll {"dice":"4d1+3"}' --session talk
tool   dice.roll is called {...,"arguments":{"dice":"4d1+3"}}
tool   dice.roll has ended {...,"success":true,"result":"{\"rolls\": [1, 1, 1, 1], \"total\": 7}"
dice.roll answered {"rolls": [1, 1, 1, 1], "total": 7}
"turns":2,"tools":[{"name":"dice.roll","ok":true}]}} (revision 5)
$ stdiod session show talk
"memory": {
"messages": {
"000004": {
"content": "dice.roll answered {\"rolls\": [1, 1, 1, 1], \"total\": 7}"
$ stdiod session end talk
talk has ended
== a plan (orchestrator, oracle, memory, dice)
$ stdiod plan run plan.json --with orchestrator
ok     done
"content": "dice.roll answered {\"rolls\": [1, 1, 1, 1], \"total\": 7}",
== a refused argument (doorkeeper, notes)
$ stdiod invoke notes add text='rm -rf /'
notes.add failed: notes.add was denied by hook doorkeeper
a hook denied it (forbidden, hook)
(exit status 1)
== an approval (doorkeeper, notes)
$ stdiod invoke notes add text='sudo make me a sandwich' --timeout 60 &
$ stdiod approvals  # until
<question>  notes.add wants "sudo make me a sandwich". Allow it?
$ stdiod approve <question>
<question> is allowed
$ wait
{"number": 2}

# Modules speak while they work
== planner plan (planner)
$ stdiod invoke planner plan goal='find a venue, then write the invitation'
info   Thinking about: find a venue
1. Decide what matters in a venue
2. Compare three of a venue
3. Choose a venue
info   Thinking about: write the invitation
4. List what the invitation must say
5. Draft the invitation in one go
6. Read the invitation aloud
ok     6 steps
"steps": [
== crowd complete (crowd)
$ stdiod invoke crowd complete --args '{"prompt":"river","max_words":4,"delay_ms":100}'
carries the lamp forgets
ok     4 words
{"text": "carries the lamp forgets", "words": 4}

# When something goes wrong, it is said what and why
== a tool that exits with 3 (flaky)
$ stdiod invoke flaky exit code=3
warn   exiting with code 3
flaky.exit failed: flaky.exit: its process exited with code 3
its process exited (internal, exited)
flaky#..., pid ..., exit code 3, ran for
stderr    flaky: simulated failure: exiting with code 3
(exit status 1)
== a tool that dies of a signal (flaky)
$ stdiod invoke flaky die signal=9
warn   dying of signal 9
flaky.die failed: flaky.die: its process was killed by SIGKILL
its process was killed (internal, signaled)
flaky#..., pid ..., killed by SIGKILL (signal 9), ran for
stderr    flaky: simulated failure: dying of signal 9
(exit status 1)
== a request that takes too long (planner)
$ stdiod invoke planner sleep seconds=60 --timeout 1
info   Thinking, 1 of 120
planner.sleep failed: planner.sleep gave no answer in 1 s
it waited until its time was over (timeout, deadline)
planner#1, pid <planner>, ran for
(exit status 1)
$ stdiod status planner
planner 1.0.0, agent: ready
planner#1, pid <planner>,

# A module that is killed is back at once
== kill -9 of VICTIM (VICTIM)
$ stdiod status VICTIM
restarts    0
VICTIM#1, pid <victim>,
$ kill -9 <victim>
$ stdiod wait VICTIM
1 module is ready
$ stdiod status VICTIM  # until
VICTIM ...: ready
restarts    1
requests    0 in flight
VICTIM#2, pid
last exit   was killed by SIGKILL
reason signaled, SIGKILL

# One process serves many requests at once
== AT_ONCE requests at once (crowd)
! ask_all

# The journal has all of it
== what happened
$ stdiod events --lines 5
! read_journal

# The end leaves nothing behind
== down
$ stdiod down
stdiod is down
== status finds no daemon and exits with 3
$ stdiod status
stdiod: no daemon listens on
(exit status 3)
== no process is left
! look_for_processes
"""


def story(present: Mapping[str, Any], missing: Mapping[str, str], *, policy: bool) -> str:
    """Return the script for the modules that can run here, by name."""
    text = BEGIN.replace("MISSING", "\n".join(f"== {name} ({name})" for name in missing))
    text = text.replace("NUMBER", str(len(present)))
    text = text.replace("WITH_POLICY", f"--policy modules/{POLICY}" if policy else "")
    for name, descriptor in present.items():
        capabilities = ", ".join(descriptor["capabilities"])
        meet = MEET.replace("NAME", name).replace("VERSION", descriptor["version"])
        meet = meet.replace("KIND", descriptor["kind"])
        text += meet.replace("CAPABILITIES", f"capabilities {capabilities}" if capabilities else "")
    victim = next((name for name in PERSISTENT if name in present), PERSISTENT[0])
    return text + STORY.replace("VICTIM", victim).replace("AT_ONCE", str(AT_ONCE))


def ask_all(demo: Demo) -> None:
    """Ask one process many things at once, over one connection to the control socket."""
    args = {f"q{n}": {"prompt": f"Verse {n}", "delay_ms": 25} for n in range(1, AT_ONCE + 1)}
    invoke = {"tool": "crowd", "operation": "invoke"}
    lines = [
        json.dumps({"requestId": name, **invoke, "input": {"op": "complete", "args": one}})
        for name, one in args.items()
    ]
    demo.print(f"  {AT_ONCE} lines into the control socket, as any program can:\n  {lines[0]}")
    streamed: dict[str, str] = {}
    said: dict[str, list[str]] = {}
    begun_before_first_end = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(ANSWERS_WITHIN_S)
        client.connect(str(demo.socket))
        client.sendall("".join(f"{line}\n" for line in lines).encode())
        with client.makefile("r", encoding="utf-8", newline="\n") as answers:
            while len(said) < AT_ONCE and (line := answers.readline()):
                event = json.loads(line)
                name = event["requestId"]
                if event["type"] == "done":
                    begun_before_first_end = begun_before_first_end or len(streamed)
                    said.setdefault(name, []).append(event["result"]["text"])
                else:
                    streamed[name] = streamed.get(name, "") + event["payload"]["content"]
    demo.expect("each has one answer", dict.fromkeys(args, 1), {n: len(said[n]) for n in said})
    words = {name: text for name, (text,) in said.items()}
    demo.expect("each answer is what was streamed for it", words, streamed)
    demo.expect("all had begun before the first one ended", AT_ONCE, begun_before_first_end)
    for name in ("q1", f"q{AT_ONCE}"):
        demo.print(f"  {name}: {words[name]}")


def read_journal(demo: Demo) -> None:
    """Hold each entry of the journal to its schema and to the registry."""
    printed = demo.call("stdiod events --since 0 --json")
    entries = [json.loads(line) for line in printed.splitlines()]
    numbers = [entry.pop("seq") for entry in entries]
    demo.expect("its numbers have no gap", list(range(1, len(entries) + 1)), numbers)
    event_v1 = Draft202012Validator(schemas.load("event.v1"))
    wrong = [fault for entry in entries for fault in lint(entry)]
    wrong += [fault.message for entry in entries for fault in event_v1.iter_errors(entry)]
    demo.expect("each is an Event v1 with what its name asks for", [], wrong)


def look_for_processes(demo: Demo) -> None:
    """See that all processes are gone."""
    left = wait_gone(demo.scratch, GONE_WITHIN_S)
    demo.expect("not of the daemon, nor of any module", [], [str(one) for one in left])
