"""What a module is told of its calls, word for word, and what a client is asked for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trio

from protocol.errors import Failure, Outcome, Reason, Success
from supervisor.kernel.kernel import Party
from tests.kernel.conftest import LATE, Asker, begin, daemon_with
from tests.kernel.host_calls import allowing, caller, error, payload, results
from tests.kernel.test_sampling import HI, provider, sample
from tests.principals import ADA

MAY = ["module.*", "session.*", "event.*", "log", "user.ask", "roots.list", "model.sample"]
BAD = "malformed_request"
NO_TEXT = "no text of user or assistant"
BLOCKS = [{"type": "text", "text": "x"}, 3]
OF_ANOTHER_SESSION = (
    "a call can be of the session of the request being served (none), or of none; not of 'other'"
)
METHODS = (
    "module.invoke, session.read, session.write, event.emit, log, roots.list, user.ask,"
    " model.sample"
)

MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("log", {"lvel": 1}, "there is no param \"lvel\"; did you mean 'level'?"),
    ("log", {"what": 1}, 'there is no param "what"; there are message, level, fields'),
    ("session.read", {"what": 1}, 'there is no param "what"; there are none'),
    ("roots.list", {"x": 1}, 'there is no param "x"; there are none'),
    ("log", {}, '"message" is missing, it must be a string'),
    ("log", {"message": 1}, '"message" is 1, it must be a string'),
    ("log", {"message": True}, '"message" is true, it must be a string'),
    ("log", {"message": "x", "fields": []}, '"fields" is an array, it must be an object'),
    (
        "log",
        {"message": "x", "level": "loud"},
        '"level" is "loud", it must be one of debug, info, warn, error',
    ),
    ("session.write", {}, '"patch" is missing, it must be an object'),
    ("session.write", {"patch": []}, '"patch" is an array, it must be an object'),
    (
        "session.write",
        {"patch": {}, "if_revision": True},
        '"if_revision" is true, it must be a whole number',
    ),
    (
        "session.write",
        {"patch": {}, "if_revision": 1.5},
        '"if_revision" is 1.5, it must be a whole number',
    ),
    ("invoke", {"module": "b"}, '"op" is missing, it must be a string'),
    ("invoke", {"op": "x"}, '"module" is missing, it must be a string'),
    ("module.invoke", {"module": "", "op": "x"}, '"module" is empty'),
    ("module.invoke", {"module": "b", "op": ""}, '"op" is empty'),
    (
        "invoke",
        {"module": "b", "op": "x", "timeout_s": True},
        '"timeout_s" is true, it must be a number',
    ),
    (
        "invoke",
        {"module": "b", "op": "x", "timeout_s": "1"},
        '"timeout_s" is "1", it must be a number',
    ),
    (
        "invoke",
        {"module": "b", "op": "x", "stream": 1},
        '"stream" is 1, it must be true or false',
    ),
    ("user.ask", {"message": "x", "form": {}}, 'a form has "type" "object" and "properties"'),
    ("model.sample", {}, '"messages" is missing, it must be an array'),
    ("model.sample", {"messages": {}}, '"messages" is an object, it must be an array'),
    ("model.sample", {"messages": ["hi"]}, f'"messages" has "hi" at 0, {NO_TEXT}'),
    (
        "model.sample",
        {"messages": [*HI, {"role": "system", "content": "x"}]},
        f'"messages" has an object at 1, {NO_TEXT}',
    ),
    (
        "model.sample",
        {"messages": [{"role": "user", "content": BLOCKS}]},
        f'"messages" has an object at 0, {NO_TEXT}',
    ),
    (
        "model.sample",
        {"messages": HI, "maxTokens": 1.5},
        '"maxTokens" is 1.5, it must be a whole number',
    ),
]

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    *(
        (payload(method, **params), BAD, f"params of the call: {words}")
        for method, params, words in MISTAKES
    ),
    (
        payload("logg", message="x"),
        "unknown_op",
        "there is no method \"logg\"; did you mean 'log'?",
    ),
    (payload("xyz"), "unknown_op", f'there is no method "xyz"; there are {METHODS}'),
    (
        payload("session.write", patch={}),
        "unknown_session",
        "the request that is being served has no session",
    ),
    (payload("session.read"), "unknown_session", "the request that is being served has no session"),
    (
        payload("invoke", module="b", op="x", session_id="other"),
        "capability",
        OF_ANOTHER_SESSION,
    ),
    (
        payload("event.emit", event="my:own", data={"x": "." * (65536 - 7)}),
        "limit_reached",
        '"data" of an event may take at most 65536 bytes',
    ),
    (
        {**payload("log", message="x"), "capability": "session.read"},
        BAD,
        "the call says that it needs the capability 'session.read', and needs 'log'",
    ),
]


async def test_a_bad_call_is_told_what_is_wrong_word_for_word(tmp_path: Path) -> None:
    a, b = caller(tmp_path, "a", capabilities=MAY), caller(tmp_path, "b")
    p = provider(tmp_path, "p")
    async with daemon_with(tmp_path, a, b, p, operator=allowing(tmp_path)) as daemon:
        calls = [{**call, "call_id": f"c{n}"} for n, (call, _, _) in enumerate(REFUSED)]
        found = {one["call_id"]: one for one in await results(daemon, *calls)}
        assert daemon.fleet.modules["b"].tally.invocations == 0
        assert daemon.fleet.modules["p"].tally.invocations == 0
    told = [found[f"c{n}"]["error"] for n in range(len(REFUSED))]
    assert [(one["details"]["reason"], one["message"]) for one in told] == [
        (reason, words) for _, reason, words in REFUSED
    ]


async def test_a_good_call_may_be_written_in_every_way_that_is_allowed(tmp_path: Path) -> None:
    a, b = caller(tmp_path, "a", capabilities=MAY), caller(tmp_path, "b")
    calls = [
        payload("event.emit", event="my:own", data={"x": "." * (65536 - 8)}),
        payload("module.invoke", module="b", op="echo", timeout_s=60),
        {**payload("invoke", module="b", op="echo", timeout_s=60.5), "capability": "module.*"},
        {**payload("invoke", module="b", op="echo"), "capability": "invoke"},
        {**payload("log", message="x"), "capability": "*"},
        *(payload("log", message="x", level=level) for level in ("debug", "info", "warn", "error")),
    ]
    async with daemon_with(tmp_path, a, b, operator=allowing(tmp_path)) as daemon:
        numbered = [{**call, "call_id": f"c{n}"} for n, call in enumerate(calls)]
        found = {one["call_id"]: one for one in await results(daemon, *numbered)}
        lines = await daemon.fleet.modules["a"].log.last_lines(5)
    outputs = [found[f"c{n}"]["output"] for n in range(len(calls))]
    assert [one.get("result", one) for one in outputs] == [{}] * len(calls)
    assert [one.text for one in lines] == [
        f"{level}: x" for level in ("info", "debug", "info", "warn", "error")
    ]


async def test_more_providers_than_eight_are_not_all_named(tmp_path: Path) -> None:
    parties = [provider(tmp_path, f"p{number}") for number in range(9)]
    a = caller(tmp_path, "a", capabilities=MAY)
    async with daemon_with(tmp_path, a, *parties, operator=allowing(tmp_path)) as daemon:
        [found] = await results(daemon, sample())
    shown = ", ".join(f'"p{number}"' for number in range(8))
    problem = error(found, "denied", "forbidden")
    assert problem["message"] == (
        f"several modules could answer model.sample ({shown}): let the policy grant a one of them"
        ' only, such as `allow = ["model.sample:p0"]`'
    )
    assert (problem["details"]["reason"], problem["details"]["capability"]) == (
        "capability",
        "model.sample",
    )


class Asked(Asker):
    """A client that may be asked by some methods, and keeps what it is asked."""

    def __init__(self, *methods: str, answer: Outcome | None = None) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, Mapping[str, Any]]] = []
        self.withdrawn: list[str] = []
        self.needed: list[str] = []
        self._methods = methods
        self._answer = answer
        self._some = trio.lowlevel.ParkingLot()

    def may_be_asked(self, method: str) -> bool:
        return method in self._methods

    def was_needed(self, method: str) -> None:
        self.needed.append(method)

    def ask(
        self,
        key: str,
        method: str,
        params: Mapping[str, Any],
        answered: Callable[[Outcome], None],
    ) -> Callable[[], None]:
        self.asked.append((key, method, dict(params)))
        self._some.unpark_all()
        if self._answer is not None:
            answered(self._answer)

        def withdraw() -> None:
            self.withdrawn.append(key)
            self._some.unpark_all()

        return withdraw

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await self._some.park()


CONTENT = {"op": "calls", "args": {"calls": [sample(), payload("roots.list", "c2")], "lines": []}}


async def calls_of(folder: Path, client: Asked, policy: str = 'mode = "permissive"\n') -> list[Any]:
    """Return the results of `model.sample` and `roots.list` for a client that may be asked."""
    parties = caller(folder, "a", capabilities=MAY), provider(folder, "p", '{"content": "of p"}')
    async with daemon_with(folder, *parties, operator=allowing(folder, policy)) as daemon:
        daemon.begin(Party(ADA), "a", "invoke", CONTENT, client)
        found = (await client.document())["result"]["results"]
        return sorted(found, key=lambda one: str(one["call_id"]))


async def test_a_client_that_may_be_asked_answers_before_any_provider(tmp_path: Path) -> None:
    client = Asked("model.sample", "roots.list", answer=Success({"its": "own"}))
    found = await calls_of(tmp_path, client)
    assert [one["output"] for one in found] == [{"its": "own"}] * 2
    assert client.asked == [("c1", "model.sample", {"messages": HI}), ("c2", "roots.list", {})]
    assert client.withdrawn == ["c1", "c2"]
    assert client.needed == []


async def test_a_client_is_asked_for_no_more_than_it_may_be(tmp_path: Path) -> None:
    client = Asked(answer=Success({"its": "own"}))
    model, roots = await calls_of(tmp_path, client)
    content = {"type": "text", "text": "of p"}
    assert model["output"] == {"role": "assistant", "content": content, "model": "p"}
    assert roots["output"] == {"roots": []}
    assert client.asked == []


async def test_the_model_of_a_client_needs_the_grant_of_all_models(tmp_path: Path) -> None:
    client = Asked("model.sample", answer=Success({"its": "own"}))
    model, _ = await calls_of(tmp_path, client, 'allow = ["model.sample:p", "roots.list"]\n')
    assert model["output"]["content"]["text"] == "of p"
    assert client.asked == []


async def test_what_a_client_answers_instead_is_the_failure_of_the_call(tmp_path: Path) -> None:
    refusal = Failure.because(Reason.CLIENT, "not now")
    for answer, words in (
        (refusal, "not now"),
        (Success(3), "the client answered with 3, it must be an object"),
    ):
        client = Asked("model.sample", "roots.list", answer=answer)
        found = await calls_of(tmp_path, client)
        assert [one["error"]["message"] for one in found] == [words] * 2


async def test_a_question_to_a_client_is_withdrawn_with_its_request(tmp_path: Path) -> None:
    client = Asked("model.sample", "roots.list")
    a = caller(tmp_path, "a", capabilities=MAY)
    async with daemon_with(tmp_path, a, operator=allowing(tmp_path)) as daemon:
        handle = daemon.begin(Party(ADA), "a", "invoke", CONTENT, client)
        assert handle is not None
        await client.until(lambda: len(client.asked) == 2)
        handle.cancel(LATE)
        await client.until(lambda: len(client.withdrawn) == 2)
    assert (await client.document())["error"]["code"] == "timeout"


async def test_a_client_whose_model_would_have_been_needed_is_told(tmp_path: Path) -> None:
    client = Asked()
    a = caller(tmp_path, "a", capabilities=MAY)
    async with daemon_with(tmp_path, a, operator=allowing(tmp_path)) as daemon:
        daemon.begin(Party(ADA), "a", "invoke", CONTENT, client)
        found = (await client.document())["result"]["results"]
    [model] = [one for one in found if one["call_id"] == "c1"]
    assert error(model, "invalid_request", "bad_request")["message"] == (
        "nothing can answer model.sample: that takes a module of the kind provider whose op"
        ' complete has an arg "messages" in its inputs, and there is none, or none that the'
        " caller may use"
    )
    assert client.needed == ["model.sample"]


async def test_events_of_a_call_of_a_tool_have_args_and_results_cut_at_16384(
    tmp_path: Path,
) -> None:
    agent = caller(tmp_path, "a", "agent", kind="agent", capabilities=MAY)
    b = caller(tmp_path, "b")
    args = [{"x": "y" * (size - 8)} for size in (16383, 16384, 16385)]
    calls = [
        payload("invoke", f"c{n}", module="b", op="echo", args=one) for n, one in enumerate(args)
    ]
    calls.append(payload("invoke", "c3", module="b", op="hang", timeout_s=0.01))
    content = {"op": "calls", "args": {"calls": calls, "lines": []}}
    async with daemon_with(tmp_path, agent, b, operator=allowing(tmp_path)) as daemon:
        asker = begin(daemon, "a", "invoke", content)
        document = await asker.document()
    assert document["ok"]
    told: list[Any] = asker.events
    by_call: dict[str, list[Any]] = {}
    for one in told:
        payload_ = dict(one.payload)
        assert payload_.pop("tool_name") in ("b.echo", "b.hang")
        request, _, call = payload_.pop("tool_call_id").rpartition(".")
        assert request == document["request_id"]
        assert (payload_.pop("duration_ms", -1) >= 0) is (one.event != "tool.call_start")
        by_call.setdefault(call, []).append((one.event, payload_))
    # The module writes a space that the bound of arguments does not count.
    whole, longer, longest = (f'{{"x": "{one["x"]}"}}' for one in args)
    assert len(whole) == 16384
    [late] = [one for one in document["result"]["results"] if one["is_error"]]
    words = late["error"]["message"]
    assert by_call == {
        "c0": [
            ("tool.call_start", {"arguments": args[0]}),
            ("tool.call_complete", {"success": True, "result": whole}),
        ],
        "c1": [
            ("tool.call_start", {"arguments": args[1]}),
            ("tool.call_complete", {"success": True, "result": longer[:16384], "cut": True}),
        ],
        "c2": [
            ("tool.call_start", {"arguments": {}, "cut": True}),
            ("tool.call_complete", {"success": True, "result": longest[:16384], "cut": True}),
        ],
        "c3": [
            ("tool.call_start", {"arguments": {}}),
            (
                "tool.call_error",
                {
                    "success": False,
                    "error": words,
                    "code": "timeout",
                    "result": f"timeout: {words}",
                },
            ),
        ],
    }
