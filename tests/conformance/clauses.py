"""Every MUST and MUST NOT of the specifications we implement, with who is bound by it.

A clause has a test that carries its id (`@pytest.mark.clause`), or says in `later` why it has none
yet. Where a clause binds a module, the test is of our enforcing it; where nobody can, `unchecked`
says why. `test_clauses.py` holds this table and the markers to each other.

Ids: `N001-<section>-<letter>` is Spec 001 (Tool Protocol 0.0.1), `PV1-<section>-<letter>` is
PROTOCOLS.md (Module Descriptor, Module Protocol, Event, Error and Plan Schema, all v1).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Binds(Enum):
    """Who has to keep a clause."""

    HOST = "host"
    MODULE = "module"
    EDITORS = "editors"


class Clause(NamedTuple):
    """One sentence of a specification."""

    id: str
    binds: Binds
    quote: str
    later: str = ""
    """Why there is no test yet."""
    unchecked: str = ""
    """Why it cannot be checked; never of what binds the host."""

    @property
    def needs_test(self) -> bool:
        return not self.later and not self.unchecked


HOST, MODULE, EDITORS = Binds.HOST, Binds.MODULE, Binds.EDITORS

SPEC_001 = (
    Clause("N001-2.2-a", MODULE, "Tools MUST write output to stdout using NDJSON"),
    Clause(
        "N001-2.3-a",
        MODULE,
        "All stdout content MUST be UTF-8 encoded text with Unix-style newlines",
    ),
    Clause("N001-2.3-b", MODULE, "Each output line MUST represent a complete, valid JSON object."),
    Clause(
        "N001-3-a", MODULE, "Every JSON object emitted by a tool MUST include [version and type]"
    ),
    Clause("N001-3-b", MODULE, '`version`: string. For this spec, MUST equal "0".'),
    Clause(
        "N001-3-c",
        MODULE,
        "`type`: string. One of: `log`, `state_patch`, `asset`, `ui_event`, `error`, `done`.",
    ),
    Clause(
        "N001-3-d",
        HOST,
        "Additional fields MAY be included and MUST be ignored unless otherwise specified.",
    ),
    Clause("N001-4.1-a", HOST, "MUST NOT treat log events as errors."),
    Clause("N001-4.2-a", MODULE, "`patch` MUST be a JSON object."),
    Clause("N001-4.2-b", HOST, "Narratoria MUST validate and merge this patch into session state"),
    Clause(
        "N001-4.2-c",
        MODULE,
        "Tools [...] MUST NOT assume how they are applied.",
        unchecked="an assumption cannot be seen",
    ),
    Clause("N001-4.3-a", MODULE, "`assetId` MUST be unique within the tool invocation."),
    Clause("N001-4.3-b", MODULE, "`mediaType` MUST be a valid MIME type string."),
    Clause(
        "N001-4.3-c",
        MODULE,
        "`path` MUST refer to a file readable by Narratoria.",
    ),
    Clause("N001-4.3-d", HOST, "Register the asset."),
    Clause(
        "N001-4.3-e",
        HOST,
        "Defer rendering until referenced by UI logic or plan execution.",
    ),
    Clause(
        "N001-4.3-f",
        HOST,
        "Display degraded or placeholder UI for unsupported `mediaType` values.",
    ),
    Clause(
        "N001-4.4-a",
        MODULE,
        "`event` MUST be a string identifying an action known to Narratoria.",
    ),
    Clause(
        "N001-4.4-b",
        MODULE,
        "Tools MUST NOT assume that Narratoria will support all events.",
        unchecked="an assumption cannot be seen",
    ),
    Clause(
        "N001-4.4-c",
        HOST,
        "Dispatch supported events to their handlers.",
    ),
    Clause(
        "N001-4.4-d",
        HOST,
        "Gracefully degrade unsupported events via placeholder messages.",
    ),
    Clause("N001-4.5-a", HOST, "Error events MUST NOT terminate the invocation by themselves."),
    Clause("N001-4.5-b", HOST, "Surface error information in logs and UI (as appropriate)."),
    Clause("N001-4.5-c", HOST, "Continue to process events until `done` or process exit."),
    Clause(
        "N001-4.6-a",
        MODULE,
        "Each invocation MUST end with exactly one `done` event OR a premature process "
        "termination.",
    ),
    Clause(
        "N001-4.6-b",
        HOST,
        "Stop accepting further events from the tool after processing `done`.",
    ),
    Clause(
        "N001-4.6-c",
        HOST,
        "Treat missing `done` plus a non-zero exit code as a protocol-level failure.",
    ),
    Clause(
        "N001-5.2-a",
        HOST,
        "If `type` is unknown, Narratoria MUST treat it as a protocol error and terminate "
        "processing for the invocation.",
    ),
    Clause(
        "N001-5.3-a",
        HOST,
        "Exit code 0: protocol intact. `done.ok` determines logical success.",
    ),
    Clause(
        "N001-5.3-b",
        HOST,
        "Exit code != 0: protocol-level failure, regardless of any emitted events.",
    ),
    Clause(
        "N001-5.4-a",
        HOST,
        "Narratoria MUST process each JSON object line-by-line as received.",
    ),
    Clause("N001-6-a", HOST, "Narratoria MAY send structured input to the tool via stdin"),
    Clause(
        "N001-7-a",
        MODULE,
        "Tools MUST return correct absolute or relative paths in asset events.",
        unchecked="which file was meant cannot be known; a file must be there (N001-4.3-c)",
    ),
    Clause(
        "N001-7-b",
        HOST,
        "Narratoria MUST NOT enforce a global schema for per-tool storage in Spec 001.",
    ),
    Clause("N001-8-a", MODULE, 'include a stable `version`: "0" field'),
    Clause("N001-8-b", MODULE, "only use defined `type` strings"),
    Clause(
        "N001-8-c",
        MODULE,
        "tolerate additional fields from future Narratoria versions",
        unchecked="this version sends none",
    ),
    Clause("N001-8-d", HOST, "ignore unknown fields within known event types"),
    Clause("N001-8-e", HOST, "not require any event types other than `done` for correctness"),
    Clause(
        "N001-8-f",
        HOST,
        "degrade gracefully on unknown MIME types or unknown `ui_event` names",
    ),
    Clause(
        "N001-11-a",
        HOST,
        'The protocol `version` string [...] MUST remain "0" until Spec 002 changes it.',
    ),
    Clause(
        "N001-11-b",
        EDITORS,
        "Future specs MUST commit to backwards compatibility",
        unchecked="binds those who write the next specification",
    ),
)

PROTOCOLS_V1 = (
    Clause("PV1-1-a", MODULE, '"required": ["name", "kind", "transport", "capabilities"]'),
    Clause("PV1-2-a", HOST, '`health` → `{ "status": "ok" }`'),
    Clause(
        "PV1-2-b", HOST, "`describe` → `{ name, version, kind, capabilities, inputs, outputs }`"
    ),
    Clause(
        "PV1-2-c", HOST, "`invoke` → input: `{ op: string, args: object, session_id?: string }`"
    ),
    Clause("PV1-2-d", HOST, "success: `{ ok: true, result: any }`"),
    Clause(
        "PV1-2-e",
        HOST,
        "failure: `{ ok: false, error: { code: string, message: string, details?: object } }`",
    ),
    Clause(
        "PV1-2-f",
        HOST,
        '`on_event` (invoked via `invoke` with `op = "on_event"`)',
    ),
    Clause(
        "PV1-2-h",
        MODULE,
        "[on_event] → ack fast; work may be async.",
        unchecked="how fast is the deadline's matter; the kernel's hooks set it",
    ),
    Clause("PV1-2-g", HOST, "**STDIO JSON**: newline-delimited JSON over stdin/stdout."),
    Clause(
        "PV1-2-i",
        HOST,
        "**HTTP JSON**: `POST /health`, `POST /describe`, `POST /invoke`.",
        later="the transport `http` and the face of the same name come with the faces",
    ),
    Clause("PV1-3-a", HOST, '"required": ["id", "ts", "event", "component"]', later="the journal"),
    Clause("PV1-3-b", HOST, "**Event Taxonomy** (names are stable)", later="the journal"),
    Clause("PV1-4-a", HOST, '{ "code", "message", "details" }'),
    Clause("PV1-4-b", HOST, "**Reserved codes**: `timeout`, `oom`, `unreachable`, ..."),
    Clause("PV1-5-a", HOST, '{ "goal": "string", "inputs": ... }'),
)

CLAUSES = SPEC_001 + PROTOCOLS_V1
