"""The op about the page: `page.login`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import trio

from protocol.errors import Failure, Reason
from supervisor.kernel.operations.connection import ConnectionOps, narrowed
from supervisor.kernel.operations.op import Op, OpGroup, OwnRequest, args_schema
from supervisor.kernel.page_codes import CODE_S
from supervisor.kernel.parties import RefusedError
from supervisor.kernel.tokens import PAGE_S
from supervisor.policy.principals import is_user

LOGIN = "page.login"


class PageOps(OpGroup):
    INPUTS: ClassVar[Mapping[str, Any]] = {
        LOGIN: args_schema(**ConnectionOps.INPUTS["narrow"]["properties"])
    }

    def ops(self) -> Mapping[str, Op]:
        return {LOGIN: self._login}

    def _login(self, args: dict[str, Any], asked: OwnRequest) -> dict[str, Any]:
        if not is_user(asked.principal.name):
            words = f"a login is for a user of this machine, and {asked.principal.name} is none"
            raise RefusedError(Failure.because(Reason.SCOPE, f"{words}: ask on the control socket"))
        principal = narrowed(asked.principal, args)
        code = self._parts.page_codes.new(principal, trio.current_time())
        shown = {key: principal.document()[key] for key in ("name", "scopes", "modules")}
        return {"code": code, "code_s": CODE_S, "login_s": PAGE_S, **shown}
