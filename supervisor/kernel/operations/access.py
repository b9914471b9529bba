"""The ops about who may do what: policy, questions, tokens, logins.

What modules may do, and the questions that wait for a person; tokens; and the logins that a program
opens to ask on behalf of others (`kernel.logins`). Ops that change something that is kept answer
once the change is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import trio
from msgspec import Meta

from protocol.errors import Reason
from supervisor.kernel.grants.operator_policy import explained
from supervisor.kernel.hooks.approvals import QuestionUpdate
from supervisor.kernel.operations.daemon import Globs, KeptRights, Scopes, check_globs, narrowed
from supervisor.kernel.operations.op import (
    Args,
    Begun,
    OfModule,
    OwnRequest,
    Word,
    op,
    seen_module,
    when_stored,
)
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.tokens import CODE_S, NAME_CHARS, PAGE_S
from supervisor.policy.approval import ALLOW, OPTION_CHARS
from supervisor.policy.capabilities import Authorization
from supervisor.policy.mcp_views import find_view
from supervisor.policy.principals import EVERYTHING, Scope, is_user

if TYPE_CHECKING:
    from supervisor.kernel.kernel import Kernel

# The policy for modules.


@op("policy.show", Scope.READ, Args, all_modules=True)
def show_policy(kernel: Kernel, _: Args, _request: OwnRequest) -> Begun:
    operator, answers = kernel.grants.operator, kernel.grants.answers.all()
    policy = msgspec.to_builtins(operator.policy)
    return {**policy, "problem": operator.problem, "answers": msgspec.to_builtins(answers)}


class ExplainArgs(OfModule):
    capability: Annotated[Word, Meta(min_length=1), "such as log, or module.invoke:kv.get"]


@op("policy.explain", Scope.READ, ExplainArgs, whole_module=True)
async def explain_policy(kernel: Kernel, args: ExplainArgs, request: OwnRequest) -> dict[str, Any]:
    grants = kernel.grants
    descriptor = seen_module(kernel, args.module, request.principal).descriptor
    decision = grants.decide(descriptor, args.capability)
    found = explained(grants.operator.policy, decision, descriptor)
    if decision.verdict is Authorization.ASK:
        known = grants.answers.find(descriptor.name, args.capability)
        if known is not None:
            same = known.program == await grants.program(descriptor)
            found["remembered"] = {"allowed": known.allowed, "ts": known.ts, "same_program": same}
    return found


@op("policy.forget", Scope.ADMIN, OfModule, whole_module=True)
def forget_answers(kernel: Kernel, args: OfModule, _request: OwnRequest) -> Begun:
    # Also of a module that is not there any more: then above all.
    forgotten = kernel.grants.answers.forget(args.module)
    return when_stored(kernel, {"forgotten": [msgspec.to_builtins(one) for one in forgotten]})


# Approvals.

ID_CHARS = 40
"""More than the id of a question has."""


class ApprovalsArgs(Args):
    follow: bool = False


@op("approvals", Scope.READ, ApprovalsArgs)
async def approvals(kernel: Kernel, args: ApprovalsArgs, request: OwnRequest) -> dict[str, Any]:
    if not args.follow:
        return {"approvals": kernel.approvals.waiting(request.principal)}
    following, unfollow = kernel.approvals.follow(request.principal)
    try:
        # Both at once: later questions come as changes.
        for question in kernel.approvals.waiting(request.principal):
            await _tell_question(request, QuestionUpdate(question))
        while True:  # until it is cancelled
            change = await following.next()
            if change.lost:
                words = f"{change.lost} changes were left out: the reader was too slow"
                await request.say(words, level="warn")
            await _tell_question(request, change)
    finally:
        unfollow()


class ApproveArgs(Args):
    id: Annotated[str, Meta(max_length=ID_CHARS)]
    answer: Annotated[
        str, Meta(max_length=OPTION_CHARS), "allow, deny, or one of the question's options"
    ] = ALLOW
    content: Annotated[dict[str, Any] | None, "what the question's form is filled in with"] = None


@op("approve", Scope.INVOKE, ApproveArgs)
def approve(kernel: Kernel, args: ApproveArgs, request: OwnRequest) -> Begun:
    decision = kernel.approvals.decide(args.id, args.answer, request.principal, args.content)
    return {"id": args.id, "answer": decision.answer, "allowed": decision.allowed}


async def _tell_question(request: OwnRequest, change: QuestionUpdate) -> None:
    question, decision = change.question, change.decision
    fields: dict[str, Any] = {"approval": question}
    if decision is None:
        words = f"{question['id']} waits: {question['prompt']}"
    else:
        said = {"allowed": decision.allowed, "answer": decision.answer, "by": decision.by}
        fields["decision"] = said
        words = f"{question['id']}: {'allowed' if decision.allowed else 'denied'}"
    await request.say(words, fields)


# Tokens.

MAX_EXPIRES_S = 100 * 365 * 86400.0

MIN_RATE_PER_S, MAX_RATE_PER_S = 0.001, 1e6

Rate = (
    Annotated[float, Meta(ge=MIN_RATE_PER_S, le=MAX_RATE_PER_S)]
    | Annotated[int, Meta(ge=1, le=int(MAX_RATE_PER_S))]
)
"""Shown as it was said: 5 is not 5.0."""

TokenName = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS)]


class NewTokenArgs(Args):
    name: Annotated[TokenName, "the name of its holder"]
    scopes: Scopes = (Scope.READ, Scope.INVOKE)
    modules: Annotated[Globs, "globs over MODULE and MODULE.OP that it may use"] = EVERYTHING
    expires_s: Annotated[
        Annotated[float, Meta(gt=0, le=MAX_EXPIRES_S)] | None,
        "for how long it is good; until it is revoked if left out",
    ] = None
    rate_per_s: Annotated[
        Rate | None,
        "how many requests a second; any number if left out",
    ] = None


@op("token.new", Scope.ADMIN, NewTokenArgs, all_modules=True)
def new_token(kernel: Kernel, args: NewTokenArgs, request: OwnRequest) -> Begun:
    check_globs(args.modules)
    token, said = kernel.tokens.new(
        request.principal,
        args.name,
        frozenset(args.scopes),
        args.modules,
        expires_s=args.expires_s,
        rate_per_s=args.rate_per_s,
    )
    return when_stored(kernel, {**token.document(), "token": said})


@op("token.list", Scope.ADMIN, Args, all_modules=True)
def list_tokens(kernel: Kernel, _: Args, _request: OwnRequest) -> Begun:
    return {"tokens": kernel.tokens.shown()}


class OfToken(Args):
    name: TokenName


@op("token.revoke", Scope.ADMIN, OfToken, all_modules=True)
def revoke_token(kernel: Kernel, args: OfToken, _request: OwnRequest) -> Begun:
    return _revoked(kernel, kernel.tokens.revoke(args.name).document())


async def _revoked(kernel: Kernel, result: dict[str, Any]) -> dict[str, Any]:
    await kernel.logins.wait_all_over()
    return await when_stored(kernel, result)


@op("page.login", Scope.ADMIN, KeptRights)
def new_page_code(kernel: Kernel, args: KeptRights, request: OwnRequest) -> Begun:
    if not is_user(request.principal.name):
        words = f"a login is for a user of this machine, and {request.principal.name} is none"
        raise RefusedError.because(Reason.SCOPE, f"{words}: ask on the control socket")
    principal = narrowed(request.principal, args)
    code = kernel.page_codes.new(principal, trio.current_time())
    shown = {key: principal.document()[key] for key in ("name", "scopes", "modules")}
    return {"code": code, "code_s": CODE_S, "login_s": PAGE_S, **shown}


# Logins.

MAX_UID = 2**32 - 2
"""The greatest id of a user: -1 is none (chown(2))."""


class LoginArgs(Args):
    token: Annotated[Word | None, "the text of a token"] = None
    code: Annotated[Word | None, "a code of `page.login`, which this uses up"] = None
    uid: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_UID)] | None,
        "a user of this machine, as the kernel knows it",
    ] = None
    pid: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_UID)] | None,
        "with uid, the process, which may be a module's",
    ] = None
    face: Annotated[
        str,
        # `$` of Python's patterns fits before a newline at the end, too.
        Meta(
            pattern=r"^[a-z][a-z0-9-]*\Z",
            max_length=32,
            extra_json_schema={"pattern": "^[a-z][a-z0-9-]*$"},
        ),
        "what the login came through, for the journal",
    ] = "http"
    view: Annotated[Word | None, "the view of an MCP client: what it is to see of modules"] = None


@op("login.open", Scope.ADMIN, LoginArgs, for_logins=True)
async def open_login(kernel: Kernel, args: LoginArgs, request: OwnRequest) -> dict[str, Any]:
    named = [name for name in ("token", "code", "uid") if getattr(args, name) is not None]
    if len(named) != 1:
        words = "login.open takes one of token, code and uid"
        words += f", not {' and '.join(named) or 'none'}"
        raise RefusedError.because(Reason.INVALID_ARGS, words, pointer="")
    if args.pid is not None and args.uid is None:
        words = "a pid is that of a process of the user uid, which is missing"
        raise RefusedError.because(Reason.INVALID_ARGS, words, pointer="/pid")
    logins, more = kernel.logins, dict[str, Any]()
    if args.code is not None:
        login, more["cookie"] = logins.by_code(request.party, args.code, args.face)
    elif args.token is not None:
        login = logins.by_token(request.party, args.token, args.face)
    else:
        assert args.uid is not None  # noqa: S101 - one of the three is given
        login = await logins.by_uid(request.party, args.uid, args.pid, args.face)
    if args.view is not None:
        view = find_view(kernel.mcp.views, args.view, login.party.principal)
        if isinstance(view, str):
            logins.close(login.handle, forget=False)
            raise RefusedError.because(Reason.INVALID_ARGS, view, pointer="/view")
        login.party.principal = view.narrowed(login.party.principal)
    if login.of_token is not None:
        more["expires"] = login.of_token.token.expires
    return {"handle": login.handle, **login.party.principal.document(), **more}


class CloseLoginArgs(Args):
    handle: Word
    forget: Annotated[bool, "log a browser out: revoke its token"] = False


@op("login.close", Scope.ADMIN, CloseLoginArgs, for_logins=True)
async def close_login(kernel: Kernel, args: CloseLoginArgs, _request: OwnRequest) -> dict[str, Any]:
    forgotten = kernel.logins.close(args.handle, forget=args.forget)
    await kernel.logins.wait_all_over()
    result = {"handle": args.handle, "forgotten": forgotten}
    return await when_stored(kernel, result) if forgotten else result


@op("login.follow", Scope.ADMIN, Args, for_logins=True)
async def follow_logins(kernel: Kernel, _: Args, request: OwnRequest) -> None:
    ends, unfollow = kernel.logins.follow()
    try:
        await request.say("each login that is over is told of from here on")
        async for end in ends:  # until it is cancelled
            await request.say(f"the login {end['handle']} is over: {end['why']}", end)
    finally:
        unfollow()
    words = "too many ends of logins were not read; close the connection, and open all anew"
    raise RefusedError.because(Reason.SLOW_READER, words)


@op("unordered", Scope.ADMIN, Args, for_logins=True)
def become_unordered(_kernel: Kernel, _: Args, request: OwnRequest) -> Begun:
    request.party.unordered = True
    request.party.may_speak_mcp = False
    return {"unordered": True}
