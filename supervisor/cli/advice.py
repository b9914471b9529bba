"""The meaning of each reason of a failure, and the next step.

A hint, and a command that helps where a daemon runs; `{module}` is filled in. A test holds the
table to be complete.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from protocol.errors import Origin, Reason


class Advice(NamedTuple):
    meaning: str
    hint: str = ""
    command: str = ""


_LOGS = "`stdiod logs {module}` shows what it wrote."
_STATUS = "`stdiod status {module}` says what it died of"
_OPS = "`stdiod describe {module}` lists its ops and what they take."
_AUTHOR = "The module breaks its protocol; its author should look at the line above."
_STDOUT = (
    "Each line on stdout has to be a JSON object of the protocol; everything else belongs on "
    "stderr."
)
_MEMORY = "Give it more with supervision.limits.memory_bytes, or ask for less at a time."

_AT_URL = "Look at transport.url in its descriptor, and at what runs there."
_MAY_BE_DONE = "It may have done its work; ask again if that does no harm."

ADVICE: dict[str, Advice] = {
    Reason.DEADLINE: Advice(
        "it took too long",
        "Allow more with --timeout, or in its descriptor with supervision.timeouts.invoke_s (and "
        "total_s, where progress renews that). If it waits for another call, "
        "supervision.concurrency lets more of them run at a time.",
    ),
    Reason.SILENCE: Advice(
        "it printed nothing for too long",
        "It should log now and then while it works; supervision.timeouts.silence_s sets how often.",
    ),
    Reason.EXIT_DEADLINE: Advice(
        "it printed `done` and kept running",
        "It has to exit after `done`; supervision.timeouts.linger_s says how soon.",
    ),
    Reason.START_DEADLINE: Advice(
        "it did not get ready in time",
        "It has to answer each line that it reads, with one line that it flushes.",
        _LOGS,
    ),
    Reason.MEMORY_LIMIT: Advice("it used more memory than it may", _MEMORY),
    Reason.CGROUP_OOM: Advice("the kernel killed it because memory ran out", _MEMORY),
    Reason.SPAWN_FAILED: Advice(
        "its program could not be started",
        "Correct what the message names: the program, or in the descriptor transport.command (or "
        "transport.prepare, which builds it).",
        "Then `stdiod start {module}` starts it.",
    ),
    Reason.EXITED: Advice("its process exited", command=_LOGS),
    Reason.SIGNALED: Advice("its process was killed", command=_LOGS),
    Reason.NOT_READY: Advice(
        "it does not run at the moment", command="`stdiod status {module}` says why."
    ),
    Reason.FAILED: Advice(
        "it failed too often in a row",
        command=_STATUS + "; mend that, then `stdiod start {module}`.",
    ),
    Reason.QUEUE_FULL: Advice(
        "too many requests wait already",
        "Try again later. If the module's queue is full, supervision.queue or "
        "supervision.concurrency allow more.",
    ),
    Reason.RATE_LIMITED: Advice(
        "that is asked too often", "`retry_in_s` says when it may be asked again."
    ),
    Reason.STOPPING: Advice("it is being stopped", command="`stdiod status {module}` shows it."),
    Reason.BROKEN_PIPE: Advice(
        "it closed its stdin or its stdout",
        "It has to keep both open, and to read until the end of stdin.",
        _LOGS,
    ),
    Reason.SLOW_READER: Advice(
        "what it printed was not read in time",
        "Read its events as they come: others use the same process.",
    ),
    Reason.REFUSED: Advice("nothing listens at the address of the service", _AT_URL),
    Reason.NO_CONNECTION: Advice("the service cannot be reached", _AT_URL),
    Reason.TLS: Advice(
        "the service is not the one that it should be, or does not speak TLS",
        "Its certificate has to be for the host in transport.url, and signed by an authority that "
        "this machine trusts. SSL_CERT_FILE in the daemon's environment names more authorities.",
    ),
    Reason.RESET: Advice("the service hung up", _MAY_BE_DONE),
    Reason.CUT_STREAM: Advice("the service hung up in the middle of its answer", _MAY_BE_DONE),
    Reason.BAD_HTTP: Advice("what answers there does not speak HTTP", _AT_URL),
    Reason.BAD_STATUS: Advice(
        "the service refuses the request",
        "401 and 403 are about transport.headers, 404 and 405 about transport.url; a module that "
        "cannot do what is asked says so in its answer, with status 200.",
    ),
    Reason.REDIRECTED: Advice(
        "the service is elsewhere", "Write into transport.url where it is, if you trust that."
    ),
    Reason.WRONG_TYPE: Advice("what answers there is not a module", _AT_URL),
    Reason.DAEMON_RESTART: Advice(
        "the daemon ended while it was in flight",
        "The module may have done its work; ask again if that does no harm.",
    ),
    Reason.UNKNOWN_MODULE: Advice(
        "there is no such module", command="`stdiod status` lists those there are."
    ),
    Reason.MISSING_OP: Advice("no op was named", command=_OPS),
    Reason.INVALID_ARGS: Advice("the args are not what the op takes", command=_OPS),
    Reason.MALFORMED_REQUEST: Advice(
        "the request could not be read",
        "The message says what is wrong with it. If not: are command and daemon of one version?",
    ),
    Reason.REENTRANT_CALL: Advice(
        "the call would wait for itself", "A module may not call one that waits for its answer."
    ),
    Reason.UNKNOWN_SESSION: Advice(
        "there is no such session", command="`stdiod session list` lists those there are."
    ),
    Reason.SESSION_ENDED: Advice(
        "the session has ended",
        "`stdiod session fork` continues from where it was, `stdiod session new` begins another.",
    ),
    Reason.SESSION_EXISTS: Advice(
        "there is such a session already", "Name another id, or none: one is made up then."
    ),
    Reason.SESSION_BUSY: Advice(
        "the session has a prompt already",
        "Without --reject it waits; `stdiod session cancel` ends the one that runs.",
    ),
    Reason.NO_AGENT: Advice(
        "no module serves its prompts",
        "`stdiod session new --agent MODULE` (or --orchestrator MODULE) names one; so does"
        " `stdiod session fork`.",
    ),
    Reason.REVISION_CONFLICT: Advice(
        "another request has changed the state",
        "`stdiod session show` has the state as it is now; make the patch for that.",
    ),
    Reason.LIMIT_REACHED: Advice("a limit would be passed", "The message names the limit."),
    Reason.UNKNOWN_ASSET: Advice("there is no such asset"),
    Reason.ASSET_CHANGED: Advice(
        "the file is not the one that was registered",
        "Call the module again, so that it writes a new file.",
    ),
    Reason.BEYOND_END: Advice(
        "the asset has no such bytes", "The message says how many there are."
    ),
    Reason.UNKNOWN_APPROVAL: Advice(
        "that question is no longer open", command="`stdiod approvals` lists those that are."
    ),
    Reason.CAPABILITY: Advice(
        "the module may not do that",
        "The message says which rule decided: the policy's, or the descriptor's own list.",
    ),
    Reason.HOOK: Advice(
        "a hook denied it", "The message names the hook, and says its reason if it gave one."
    ),
    Reason.SCOPE: Advice(
        "the caller may not do that", "The message says what is missing; ask with more rights."
    ),
    Reason.WRONG_LOGIN: Advice(
        "the token or the code lets nobody in",
        "`stdiod token new` makes a token, and `stdiod page` a code.",
    ),
    Reason.LOGIN_OVER: Advice(
        "the login is over, or never was", "It takes a new one: a token may have been revoked."
    ),
    Reason.MISSING_DONE: Advice(
        "it ended without saying `done`",
        "It has to print a `done` event last, and flush it, on every path.",
        _LOGS,
    ),
    Reason.UNKNOWN_TYPE: Advice("it printed an event of an unknown type", _AUTHOR),
    Reason.BAD_VERSION: Advice(
        'it printed an event without "version":"0"', 'Each event has to have "version":"0".'
    ),
    Reason.MALFORMED_JSON: Advice("it printed a line that cannot be read", _STDOUT),
    Reason.UNREADABLE_OUTPUT: Advice(
        "its output is not what its descriptor says",
        'The command has to print one JSON value; or say "stdout": "text" in transport.exec.ops.',
    ),
    Reason.NOT_OBJECT: Advice("it printed JSON that is not an object", _STDOUT),
    Reason.INVALID_UTF8: Advice("it printed bytes that are not UTF-8", _AUTHOR),
    Reason.INVALID_EVENT: Advice("it printed an answer or an event that is not valid", _AUTHOR),
    Reason.TRUNCATED_LINE: Advice(
        "its output ended in the middle of a line",
        "It has to end each line with a newline, and flush it.",
        _LOGS,
    ),
    Reason.LINE_TOO_LONG: Advice(
        "it printed a line that is longer, or holds more values, than it may",
        "Hand large results over as an asset; supervision.limits.line_bytes allows longer lines.",
    ),
    Reason.REPORTED: Advice("the module said so"),
    Reason.STORAGE: Advice(
        "the daemon cannot keep what it should",
        "Make room on the disk of its data directory; nothing has to be restarted.",
        "`stdiod doctor` looks at it.",
    ),
    Reason.UNKNOWN_OP: Advice("it has no such op", command=_OPS),
    Reason.CLIENT: Advice("it was cancelled"),
    Reason.DISCONNECT: Advice("the client went away"),
    Reason.SHUTDOWN: Advice("the daemon is ending", command="`stdiod up DIR` starts one."),
    Reason.PARENT_ENDED: Advice(
        "the request on whose behalf it was made has ended", "The answer to that request says why."
    ),
}

PROBE = Advice(
    "it did not answer in time",
    "A module that is busy or hung answers no probe; supervision.timeouts.health_s and describe_s "
    "say how long it may take.",
    _LOGS,
)
"""A deadline that passed where no op was invoked: `health`, `describe`."""

OTHER_ID = Advice("the answer was for another request")
"""A deadline that passed after a line with the id of no open request: more time does not help."""

BUSY = Advice(
    "it worked until its time was over",
    "Look in the op for a loop that does not end, or for more work than fits into its time.",
)
"""A deadline that passed while the process computed: more time does not help a loop."""

THREAD_DIED = Advice(
    "it did not answer, and something in it failed before",
    "Look at what it wrote on stderr: a thread that ends with an error answers nobody.",
    _LOGS,
)
"""A deadline that passed after a report of an error on stderr, while the process was idle."""

IDLE = Advice(
    "it waited until its time was over",
    "Look at what it waits for: it has to print and flush its answer, end a stream with `done`, "
    "and read the `host_result` of a call to the host. If it needs more time, --timeout allows it, "
    "or supervision.timeouts.invoke_s in its descriptor; if it waits for another call, "
    "supervision.concurrency lets more of them run at a time.",
)
"""A deadline that passed while the process was idle."""

NO_ANSWER = Advice(
    "what it printed is not an answer",
    "The answer to a request is one line of JSON; whatever else is to be read belongs on stderr.",
)
"""A deadline that passed after a line that is not the protocol."""

UNFINISHED = Advice(
    "it did not end its line", "It has to end each line with a newline, and flush it."
)
"""A deadline that passed after the beginning of a line."""

OF_A_VALUE = Advice("one of the args cannot be used", "The message says which one, and why.")
"""Args of an op of the daemon itself that its schema accepts."""

WAITED = Advice(
    "it did not get its turn", command="`stdiod status {module}` shows what it waited for."
)
"""A deadline that passed before the module was asked."""

_OF_LIMITS = {
    "processes": Advice(
        "it had more processes than it may", "Allow more with supervision.limits.processes."
    ),
    "memory_ceiling_bytes": Advice(
        "all modules together used more memory than they may, and it used the most",
        "Allow more with memory_ceiling_bytes in the daemon's configuration.",
    ),
}


_REPORT = re.compile(r"Traceback \(most recent|Exception in thread|.*(Uncaught|panicked at)")
"""The beginning of a stderr line that reports the end of a thread."""


def advice(details: dict[str, Any], *, module: str, op: str = "") -> Advice:
    """Return the advice for a failure; `op` is empty for a probe."""
    if details.get("origin") == Origin.MODULE:
        return Advice(f"reported by {module}")
    limit, reason = details.get("limit"), details.get("reason")
    if isinstance(limit, dict) and limit.get("limit") in _OF_LIMITS:
        return _OF_LIMITS[limit["limit"]]
    if reason in (Reason.DEADLINE, Reason.SILENCE):
        if "stray_id" in details:
            return OTHER_ID
        if "line_excerpt" in details:
            return NO_ANSWER
        if "unfinished_line" in details:
            return UNFINISHED
        if "state" in details:
            return WAITED
        if details.get("busy"):
            return BUSY
        if op and reason == Reason.DEADLINE and "cpu_s" in details:
            reported = any(map(_REPORT.match, details.get("stderr_tail") or ()))
            return THREAD_DIED if reported else IDLE
    if reason == Reason.DEADLINE and not op:
        return PROBE
    unknown = Advice("the daemon gives no reason that is known here")
    return ADVICE.get(str(reason), unknown)
