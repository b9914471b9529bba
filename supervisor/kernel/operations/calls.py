"""The ops that become a request to a module: `invoke`, and `session.prompt`.

Both stream and are cancelled like any other invocation, so they answer the client themselves.
`invoke` is there so that a daemon inside another one can be asked for its modules' ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from supervisor.kernel.begin_order import OWN_OPS
from supervisor.kernel.operations.op import Args, ModuleName, OwnRequest, Word, op
from supervisor.kernel.parties import Handle
from supervisor.kernel.prompts import CONTENT_CHARS, PROMPT, Conflict, Prompt
from supervisor.kernel.request_checks import MAX_TIMEOUT_S
from supervisor.policy.principals import Scope
from supervisor.runtime.turns import Turn

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel


class InvokeArgs(Args):
    module: ModuleName
    op: Word
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    session_id: Word | None = None
    timeout_s: Annotated[float, Meta(gt=0)] | None = None


@op("invoke", Scope.INVOKE, InvokeArgs, hands_over=True)
def invoke(kernel: Kernel, args: InvokeArgs, request: OwnRequest) -> Handle | None:
    party = request.party
    known = {
        "session_id": args.session_id,
        "timeout_s": args.timeout_s,
        "traceparent": request.traceparent,
    }
    content = {key: one for key, one in known.items() if one is not None}
    content |= {"op": args.op, "args": args.args}
    return kernel.requests.invoke(
        party.principal,
        args.module,
        content,
        request.client,
        order=party.order,
        account=party.account,
    )


class PromptArgs(Args):
    session_id: Word
    content: Annotated[
        str, Meta(min_length=1, max_length=CONTENT_CHARS), "what the session is asked"
    ]
    priority: Literal["low", "normal", "high", "urgent"] = "normal"
    conflict_strategy: Annotated[Conflict, "what to do if the session is busy"] = Conflict.QUEUE
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)] | None = None


@op(PROMPT, Scope.INVOKE, PromptArgs, hands_over=True)
def prompt_session(kernel: Kernel, args: PromptArgs, request: OwnRequest) -> Handle | None:
    """Begin a prompt in the order of the party's requests."""
    party, prompts = request.party, kernel.prompts
    prompt = Prompt(prompts, party.principal, msgspec.structs.asdict(args), request.client)
    prompt.account = party.account

    order, turn, steps = party.order, Turn(), prompts.beginning(prompt)
    turn.begin()
    if order or any(turn.over for _ in steps):
        order.place(OWN_OPS, prompt, lambda _: steps, kernel.requests.begin_tasks)
    return None if prompt.ended else prompt
