// TypeScript types of stdiod: what HTTP takes and answers (`paths`), and what stands in files.
// Made by `make typescript` (scripts/generate_types.py) with openapi-typescript@7.13.0; do not edit.
// The document it was made of: sha256 43b63c53cbe1a01955a93046ef0fa7d2fe1bb2cd96c6af620609e730a6a64745

export interface paths {
    "/": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The page to look at in a browser */
        get: operations["get-"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/page/{file}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A file of the page */
        get: operations["get-page-file"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/page/views/{file}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A script of one of its views */
        get: operations["get-page-views-file"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Log a browser in, with a code of `stdiod page` */
        get: operations["get-login"];
        put?: never;
        /** Log a browser in, with a token, over TLS or at loopback */
        post: operations["post-login"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/logout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Log a browser out */
        post: operations["post-logout"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** This description */
        get: operations["get-api-v1-openapi-json"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What runs in figures, for Prometheus or as OpenMetrics */
        get: operations["get-metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/mcp": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Notifications of an MCP session of the older era, as a stream */
        get: operations["get-mcp"];
        put?: never;
        /** A message of an MCP client */
        post: operations["post-mcp"];
        /** End an MCP session of the older era */
        delete: operations["delete-mcp"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/mcp/{view}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Notifications of an MCP session of the older era, as a stream */
        get: operations["get-mcp-view"];
        put?: never;
        /** A message of an MCP client */
        post: operations["post-mcp-view"];
        /** End an MCP session of the older era */
        delete: operations["delete-mcp-view"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether the daemon is well */
        get: operations["get-api-v1-health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/info": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What the daemon is, and which ops it has */
        get: operations["get-api-v1-info"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What runs, and what does not and why */
        get: operations["get-api-v1-status"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/modules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** All modules */
        get: operations["get-api-v1-modules"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/modules/{module}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One module */
        get: operations["get-api-v1-modules-module"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/modules/{module}/invoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Call an op of a module */
        post: operations["post-api-v1-modules-module-invoke"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/modules/{module}/start": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Start a module; answers when it is ready */
        post: operations["post-api-v1-modules-module-start"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/modules/{module}/stop": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Stop a module; it stays down */
        post: operations["post-api-v1-modules-module-stop"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/modules/{module}/restart": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Replace the process of a module */
        post: operations["post-api-v1-modules-module-restart"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/modules/{module}/logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The last lines of a module's log, or a stream of them and what follows */
        get: operations["get-api-v1-modules-module-logs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tools": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Modules of the kind tool */
        get: operations["get-api-v1-tools"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tools/{module}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One module of the kind tool, with the schemas of its ops */
        get: operations["get-api-v1-tools-module"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tools/{module}/execute": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Call a tool as AMCP has it */
        post: operations["post-api-v1-tools-module-execute"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/agents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Modules of the kind agent */
        get: operations["get-api-v1-agents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/agents/{module}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One module of the kind agent, with the schemas of its ops */
        get: operations["get-api-v1-agents-module"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/reload": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Apply what changed in the descriptors */
        post: operations["post-api-v1-reload"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The sessions, the newest first */
        get: operations["get-api-v1-sessions"];
        put?: never;
        /** Begin a session */
        post: operations["post-api-v1-sessions"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One session, with state and history */
        get: operations["get-api-v1-sessions-session_id"];
        put?: never;
        post?: never;
        /** End a session, and what it does */
        delete: operations["delete-api-v1-sessions-session_id"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Begin a session with the state of another */
        post: operations["post-api-v1-sessions-session_id-fork"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/state": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The state of a session; its ETag is the revision */
        get: operations["get-api-v1-sessions-session_id-state"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /** Change the state by a JSON Merge Patch; with If-Match only that revision of it */
        patch: operations["patch-api-v1-sessions-session_id-state"];
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The last invocations of a session */
        get: operations["get-api-v1-sessions-session_id-history"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/prompt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Ask a session something, and wait for the answer */
        post: operations["post-api-v1-sessions-session_id-prompt"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/prompt/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Ask a session something, and get the answer as it comes */
        post: operations["post-api-v1-sessions-session_id-prompt-stream"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What happens to a session, as it happens */
        get: operations["get-api-v1-sessions-session_id-events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/sessions/{session_id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Cancel the prompts of a session */
        post: operations["post-api-v1-sessions-session_id-cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/assets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The files that modules handed over */
        get: operations["get-api-v1-assets"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/assets/{asset}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** All that is known of one */
        get: operations["get-api-v1-assets-asset"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/assets/{asset}/content": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Its bytes, or a range of them */
        get: operations["get-api-v1-assets-asset-content"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Entries of the journal, or a stream of them and what follows */
        get: operations["get-api-v1-events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/approvals": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The questions that wait for a person, or a stream of how they are answered */
        get: operations["get-api-v1-approvals"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/approvals/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Answer a question */
        post: operations["post-api-v1-approvals-id"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/ws": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Go on with WebSocket, perhaps bound to a session */
        get: operations["get-ws"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/modules/{module}/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Module Protocol v1: whether a module is well */
        post: operations["post-modules-module-health"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/modules/{module}/describe": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Module Protocol v1: what a module is */
        post: operations["post-modules-module-describe"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/modules/{module}/invoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Module Protocol v1: call an op */
        post: operations["post-modules-module-invoke"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description The modules of the kind agent. */
        Agents: {
            agents: components["schemas"]["ModuleStatus"][];
        };
        /** @description What an answer to a question came to. */
        Answered: {
            id: string;
            answer: string;
            allowed: boolean;
        };
        /** @description Who asked for something. */
        Asker: {
            name: string;
            /** @description the way in: `socket`, `http`, `mcp`... */
            face: string;
        };
        /** @description A file that a module handed over. */
        Asset: {
            /** @description the daemon's id for it */
            asset: string;
            /** @description the module's own */
            asset_id: string;
            module: string;
            op: string;
            request_id: string;
            session_id: string | null;
            span_id: string | null;
            owner: string | null;
            kind: string;
            media_type: string;
            /** @description whether programs at hand usually show such a file */
            supported: boolean;
            path: string;
            real_path: string;
            /** @description in bytes */
            size: number;
            mtime_ns: number;
            sha256: string | null;
            /** @description whether the daemon keeps a copy */
            copied: boolean;
            /** @description why there is no digest */
            problem: string | null;
            /** @description Unix time in seconds */
            ts: number;
            /** @description a text to show in place of what cannot be shown */
            placeholder: string | null;
        };
        /** @description 4.3 */
        AssetEvent: {
            /** @constant */
            version: "0";
            /** @constant */
            type: "asset";
            requestId?: string | null;
            /** @description ISO-8601 datetime */
            timestamp?: string | null;
            assetId: string;
            kind: string;
            /** @description A MIME type; a bad one refuses the asset, not the line. */
            mediaType: string;
            path: string;
            metadata?: Record<string, unknown> | null;
        };
        /** @description Assets, the newest last. */
        Assets: {
            assets: components["schemas"]["Asset"][];
            left_out: number;
            forgotten: number;
        };
        /** @description A limit that was passed. */
        Breach: {
            /** @description its name */
            limit: string;
            allowed: number;
            used: number;
            /** @description for a limit of all modules together: this module's part */
            share: number | null;
        };
        /** @description What a cancel came to. */
        Cancelled: {
            session_id: string;
            /** @description how many requests */
            cancelled: number;
        };
        /** @description A module that is replaced, and why. */
        ChangedDescriptor: components["schemas"]["NamedDescriptor"] & {
            /** @description what differs in its descriptor */
            changes: {
                pointer: string;
                old?: unknown;
                new?: unknown;
            }[];
            /** @description program files that changed */
            programs: string[];
        };
        /** @description The daemon itself; docs/operating.md explains each field. */
        DaemonStatus: {
            pid: number;
            version: string;
            uptime_s: number;
            /** @description the rung in force */
            containment: string;
            /** @description the rung of per-invocation processes without a memory limit */
            tool_containment: string;
            /** @description what each higher rung lacks here */
            why_not_higher: string | null;
            guardian_pid: number | null;
            guardian_problem: string | null;
            spawner_pid: number | null;
            blank_pid: number | null;
            /** @description the control socket */
            socket: string | null;
            /** @description where HTTP is served */
            http: string | null;
            /** @description the folder of the project it belongs to */
            project: string | null;
            data_dir: string;
            data_dir_problem: string | null;
            directories: string[];
            rss_bytes: number;
            reaped_orphans: number;
            left_containers: string[];
            /** @description descriptors */
            open_files: {
                used: number;
                limit: number;
            };
            held_bytes: components["schemas"]["HeldBytes"];
            /** @description clients */
            connections: {
                open: number;
                /** @description since the start */
                refused: number;
            };
            /** @description invocations that ended before a module was asked, by reason */
            refused: {
                [key: string]: number;
            };
            dropped_log_bytes: number;
            log_error: string | null;
            own_log: components["schemas"]["OwnLog"] | null;
            /** @description null if none are wanted */
            spans: components["schemas"]["SpanCounts"] | null;
            longest_stall: components["schemas"]["Stall"] | null;
            /** @description how often the daemon was stopped for a second or more */
            suspensions: {
                count: number;
                total_s: number;
                last_s: number | null;
                last_ts: number | null;
            };
            /** @description work that waits for files or for the kernel */
            stuck: components["schemas"]["Stuck"][];
            /** @description null if it keeps none */
            journal: components["schemas"]["JournalStatus"] | null;
            reloads: number;
            last_reload: components["schemas"]["LastReload"] | null;
            /** @description modules whose descriptors are gone and which still run */
            leaving: components["schemas"]["ModuleStatus"][];
            /** @description how changes of descriptors are noticed */
            watch: {
                /**
                 * @description the way
                 * @enum {string}
                 */
                mode: "off" | "inotify" | "polling";
                directories: number;
                reason: string | null;
            };
            /** @description assets */
            assets: {
                known: number;
                forgotten: number;
                copied_bytes: number;
            };
            /** @description those who watch `ui_event`s */
            ui: {
                subscribers: number;
                placeholders: number;
            };
            sessions: components["schemas"]["SessionCounts"];
            /** @description null without a file */
            policy: components["schemas"]["PolicyStatus"] | null;
            /** @description questions to people */
            approvals: {
                waiting: number;
                followers: number;
            };
        };
        /** @description What became of a question. */
        Decision: {
            allowed: boolean;
            answer: string;
            /** @description `client`, `timeout`, `withdrawn` or `too_many` */
            by: string;
        };
        /** @description What a module says it is; a failure if it cannot be asked. */
        DescribeReply: components["schemas"]["Description"] | components["schemas"]["ModuleFailure"];
        /**
         * Module Protocol v1: describe reply
         * @description What is left out, or null, is what the descriptor says.
         */
        Description: {
            name?: string | null;
            /** @description null when the module has no version: Module Descriptor v1 does not require one. */
            version?: string | null;
            kind?: string | null;
            capabilities?: string[] | null;
            /** @description By convention an object: each op, and the JSON Schema of its args. */
            inputs?: unknown;
            /** @description By convention an object: each op, and the JSON Schema of its result. */
            outputs?: unknown;
            /** @description Ours, optional: "cancel", "host_call". */
            features?: string[] | null;
        };
        /** @description 4.6 */
        DoneEvent: {
            /** @constant */
            version: "0";
            /** @constant */
            type: "done";
            requestId?: string | null;
            /** @description ISO-8601 datetime */
            timestamp?: string | null;
            ok: boolean;
            summary?: string | null;
        };
        /** @description A session that was ended. */
        EndedSession: components["schemas"]["Session"] & {
            /** @description how many requests that cancelled */
            cancelled: number;
        };
        /** @description 4.5 */
        ErrorEvent: {
            /** @constant */
            version: "0";
            /** @constant */
            type: "error";
            requestId?: string | null;
            /** @description ISO-8601 datetime */
            timestamp?: string | null;
            errorCode: string;
            errorMessage: string;
            details?: Record<string, unknown> | null;
        };
        /** Error Schema v1 */
        ErrorV1: {
            /** @description Reserved: timeout, oom, unreachable, bad_request, forbidden, internal, unsupported_op. A module may report others. */
            code: string;
            /** @description human-readable */
            message: string;
            details?: Record<string, unknown>;
        };
        /** @description What came of calling a tool as AMCP has it. */
        ExecutedTool: {
            success: boolean;
            /** @description what the tool answered */
            result: unknown;
            /** @description what the tool reports to have failed */
            error: string | null;
        };
        /** @description The process that serves HTTP. */
        GatewayStatus: {
            state: components["schemas"]["ModuleState"];
            /** @description how often it was restarted without being asked to */
            restarts: number;
            /** @description when it is started again */
            next_retry_s: number | null;
            instances: components["schemas"]["ModuleInstance"][];
            last_exit: components["schemas"]["LastExit"] | null;
        };
        /** Module Protocol v1: health reply */
        Health: {
            /** @description "ok" is healthy; any other word is a well-formed answer that says the module is not. */
            status: string;
        };
        /** @description What a module says of its health; a failure if it cannot be asked. */
        HealthReply: components["schemas"]["Health"] | components["schemas"]["ModuleFailure"];
        /** @description What the daemon holds in memory for others. */
        HeldBytes: {
            total: number;
            /** @description ever */
            most: number;
            limit: number;
            party_limit: number;
            parties: components["schemas"]["HeldFor"][];
            more_parties: number;
        };
        /** @description What is held for one party, in bytes. */
        HeldFor: {
            party: string;
            /** @description whose the client is */
            by: string | null;
            total: number;
        } & {
            [key: string]: number;
        };
        /** @description What a hook registered, and what became of the events it observes. */
        HookStatus: {
            /** @description globs of event names */
            observe: string[];
            /** @description what it gates */
            gate: string[];
            /** @description globs of the modules whose invocations it gates */
            modules: string[];
            priority: number;
            /**
             * @description what becomes of an invocation that it cannot judge
             * @enum {string}
             */
            on_failure: "closed" | "open";
            timeout_s: number;
            queue: number;
            /**
             * @description which events are dropped when the queue is full
             * @enum {string}
             */
            drop: "oldest" | "newest";
            /** @description null if it observes none */
            events: components["schemas"]["ObservedEvents"] | null;
        };
        /** @description What the daemon is. */
        Info: {
            /** @description its name as a module */
            name: string;
            /** @description of stdiod */
            version: string;
            /** @description what its protocol can do beyond the base */
            features: string[];
            /** @constant */
            api_version: "v1";
            /** @description the names of its own ops */
            ops: string[];
        };
        InvokeFailure: {
            /** @constant */
            ok: false;
            result?: never;
            error: components["schemas"]["ErrorV1"];
            summary?: string | null;
            request_id: string | null;
            module?: string | null;
            op?: string | null;
            session_id?: string | null;
            duration_ms: number;
            /** @description What the host did not accept and carried on. */
            warnings: {
                reason: string;
                message: string;
                line_excerpt?: string;
            }[];
            /** @description What hooks want in the context of whoever asked; left out if that is nothing. */
            injected?: {
                content: string;
                /** @enum {string} */
                role: "system" | "user" | "assistant";
                ephemeral: boolean;
                append_to_last_tool_result: boolean;
            }[];
        };
        /**
         * stdiod response v1
         * @description The one terminal answer to a request. What is not known (the module of a request that named none) is null or left out.
         */
        InvokeResponse: components["schemas"]["InvokeSuccess"] | components["schemas"]["InvokeFailure"];
        InvokeSuccess: {
            /** @constant */
            ok: true;
            /** @description Any JSON value. */
            result: unknown;
            error?: never;
            summary?: string | null;
            request_id: string | null;
            module?: string | null;
            op?: string | null;
            session_id?: string | null;
            duration_ms: number;
            /** @description What the host did not accept and carried on. */
            warnings: {
                reason: string;
                message: string;
                line_excerpt?: string;
            }[];
            /** @description What hooks want in the context of whoever asked; left out if that is nothing. */
            injected?: {
                content: string;
                /** @enum {string} */
                role: "system" | "user" | "assistant";
                ephemeral: boolean;
                append_to_last_tool_result: boolean;
            }[];
        };
        /** @description Entries of the journal. */
        Journal: {
            events: components["schemas"]["JournalEntry"][];
            /** @description the id of the journal whose numbers these are */
            journal: string;
            /** @description the number of its newest entry */
            last_seq: number;
        };
        /** @description An entry of the journal (schemas/event.v1.json), with its number. What is not known is left out. */
        JournalEntry: {
            /** @description its number, on which a client can go on */
            seq: number;
            id: string;
            /** @description Unix time in seconds */
            ts: number;
            /** @description its name, of `RegisteredEntry` or a module's own */
            event: string;
            component: string;
            module?: string;
            status?: string;
            duration_ms?: number;
            data?: Record<string, unknown>;
            /** @description how it failed */
            error?: components["schemas"]["ErrorV1"];
            session_id?: string;
            request_id?: string;
            span_id?: string;
            by?: components["schemas"]["Asker"];
        };
        /** @description What a stream of entries begins with. */
        JournalHeading: {
            message: string;
            /** @description the id of the journal whose numbers these are */
            journal: string;
            first_seq: number | null;
            last_seq: number;
            since: number;
        };
        /** @description An item of a stream of the journal. */
        JournalItem: components["schemas"]["JournalEntry"] | components["schemas"]["JournalHeading"];
        /** @description The journal. */
        JournalStatus: {
            path: string;
            id: string;
            events: number;
            bytes: number;
            waiting_bytes: number;
            last_seq: number;
            dropped: number;
            problem: string | null;
            set_back?: string;
            /** @description files that were set aside since the start */
            set_aside: {
                path: string;
                why: string;
            }[];
        };
        /**
         * @description What a module is for.
         * @enum {string}
         */
        Kind: "provider" | "tool" | "agent" | "hook" | "orchestrator" | "context";
        /** @description How the last process of a module ended. */
        LastExit: {
            /** @description from the list under `last_exit.reason` in docs/operating.md */
            reason: string;
            /** @description the same for people, with the figures */
            message: string;
            /** @description when: Unix time in seconds */
            ts: number;
            /** @description if it exited by itself */
            exit_code: number | null;
            /** @description the number of the signal that ended it */
            signal: number | null;
            /** @description its last lines on stderr */
            stderr_tail: string[];
            /** @description the pids of its processes that could not be killed */
            survivors: number[];
            /** @description whether the host wanted it to end */
            stopped_by_host: boolean;
            /** @description the limit that it was ended for */
            limit: components["schemas"]["Breach"] | null;
            /** @description the JSON pointer of the entry of `never_on` that keeps the module down */
            rule: string | null;
        };
        /** @description What the last reload did, in numbers. */
        LastReload: {
            number: number;
            ts: number;
            cause: string;
            duration_ms: number;
            added: number;
            removed: number;
            changed: number;
            unchanged: number;
            quarantined: number;
        };
        /** @description Times from a request's acceptance to its response, in ms; null before the first one. */
        Latency: {
            /** @description an estimate */
            p50: number | null;
            /** @description an estimate */
            p99: number | null;
            /** @description exact */
            max: number | null;
            count: number;
            /** @description with `histogram`: pairs of a time in microseconds and how often it was seen */
            histogram_us?: number[][];
            /** @description with `histogram`: all times together in microseconds */
            total_us?: number;
        };
        /** @description 4.1 */
        LogEvent: {
            /** @constant */
            version: "0";
            /** @constant */
            type: "log";
            requestId?: string | null;
            /** @description ISO-8601 datetime */
            timestamp?: string | null;
            /** @enum {string} */
            level: "debug" | "info" | "warn" | "error";
            message: string;
            fields?: Record<string, unknown> | null;
        };
        /** @description An item of a stream of a module's log. */
        LogItem: components["schemas"]["LogLine"] | components["schemas"]["StreamNotice"];
        /** @description A line of a module's log. */
        LogLine: {
            message: string;
            /** @description Unix time in seconds */
            ts: number;
            instance: string;
            /** @description `stderr`, `host`, or what else wrote it */
            stream: string;
        };
        /** @description The last lines of a module's log. */
        LogLines: {
            lines: components["schemas"]["LogLine"][];
            module: string;
        };
        /** @description What was agreed on with an MCP server. */
        McpAgreement: {
            era: string;
            revision: string;
        };
        /** @description What happened to a module since the daemon started. */
        ModuleCounters: {
            invocations: number;
            failures: number;
            /** @description lines for requests that were no longer open */
            late_lines: number;
            /** @description lines that were not the protocol */
            quarantined_lines: number;
            /** @description lines that the rate limit of its log left out */
            left_out_log_lines: number;
        };
        ModuleFailure: {
            /** @constant */
            ok: false;
            /** @description Any JSON value; left out, it is null. */
            result?: unknown;
            error: components["schemas"]["ErrorV1"];
        };
        /** @description A process of a module, or its service. */
        ModuleInstance: {
            /** @description `NAME#N`; N grows with each process */
            id: string;
            /** @description null for a service */
            pid: number | null;
            /** @description one of the module's states, `warm` if it waits for its request, or `stopping` if it is dead and cannot be reaped */
            state: string;
            uptime_s: number;
            /** @description its memory; null if that is not known */
            rss_bytes: number | null;
            /** @description the processor time it has used; null if that is not known */
            cpu_s: number | null;
            /** @description the requests it serves */
            in_flight: number;
            /** @description which line of its output was set aside last, and why */
            warning: string | null;
            /** @description who traces one that is stopping or degraded */
            traced_by: components["schemas"]["Tracer"] | null;
            /** @description what a process that prepares the module printed last */
            last_line: string | null;
        };
        /** Module Protocol v1: invoke reply */
        ModuleReply: components["schemas"]["ModuleSuccess"] | components["schemas"]["ModuleFailure"];
        /**
         * @description Where a module is in its life.
         * @enum {string}
         */
        ModuleState: "down" | "disabled" | "preparing" | "starting" | "ready" | "degraded" | "backoff" | "failed" | "stopping";
        /** @description A module, as `status` shows it. */
        ModuleStatus: {
            name: string;
            kind: components["schemas"]["Kind"];
            version: string | null;
            description: string | null;
            /** @description the dialect it speaks */
            protocol: string;
            /**
             * @description whether a process serves many requests or one
             * @enum {string}
             */
            lifecycle: "persistent" | "per-invocation";
            /** @description where a service is */
            url: string | null;
            /** @description what was agreed on with an MCP server that is ready */
            mcp: components["schemas"]["McpAgreement"] | null;
            state: components["schemas"]["ModuleState"];
            /**
             * @description where it should be
             * @enum {string}
             */
            wanted: "up" | "down";
            /**
             * @description when it is started
             * @enum {string}
             */
            start: "eager" | "lazy";
            /** @description what a module that is down needs before it can start */
            waits_for: string[];
            /** @description what a running module depends on, and does not serve */
            missing: string[];
            /** @description how often it was restarted without being asked to */
            restarts: number;
            /** @description when it is started again */
            next_retry_s: number | null;
            in_flight: number;
            queued: number;
            /** @description its file */
            descriptor: string;
            unset_variables: string[];
            /** @description which of its processes describes itself differently, and what in a hook fits nothing */
            misfits: string[];
            /** @description why its descriptor cannot be used now, so that the last good version is */
            quarantined: string | null;
            instances: components["schemas"]["ModuleInstance"][];
            last_exit: components["schemas"]["LastExit"] | null;
            counters: components["schemas"]["ModuleCounters"];
            latency_ms: components["schemas"]["Latency"];
            /** @description null if nobody knows any */
            ops: components["schemas"]["OfferedOps"] | null;
            /** @description null for all other kinds */
            hook: components["schemas"]["HookStatus"] | null;
        };
        ModuleSuccess: {
            /** @constant */
            ok: true;
            /** @description Any JSON value; left out, it is null. */
            result?: unknown;
        };
        /** @description All modules. */
        Modules: {
            modules: components["schemas"]["ModuleStatus"][];
            quarantined: components["schemas"]["Quarantined"][];
        };
        /** @description A module whose descriptor has another path now. */
        MovedDescriptor: components["schemas"]["NamedDescriptor"] & {
            from: string;
        };
        /** @description A module, and its descriptor's file. */
        NamedDescriptor: {
            name: string;
            descriptor: string;
        };
        /** @description What became of the events that a hook observes. */
        ObservedEvents: {
            waiting: number;
            waiting_bytes: number;
            in_flight: number;
            delivered: number;
            failed: number;
            dropped: number;
        };
        /** @description The ops of a module. */
        OfferedOps: {
            /** @description the first 256 */
            names: string[];
            /** @description of all */
            count: number;
            /** @description whether this is what the module said when it last ran */
            remembered: boolean;
            /** @description with `inputs`: the schema of the args of each op */
            inputs?: unknown;
        };
        /** @description What became of the daemon's own log. */
        OwnLog: {
            lost_lines: number;
            problem: string | null;
        };
        /** @description An invocation of a session that has ended. */
        PastInvocation: {
            request_id: string;
            module: string;
            op: string;
            ok: boolean;
            /** @description of its error */
            code: string | null;
            duration_ms: number;
            /** @description when it ended: Unix time in seconds */
            ts: number;
        };
        /** @description What a patch led to. */
        PatchedState: {
            session_id: string;
            revision: number;
        };
        /** @description What modules may do, by the operator's file. */
        PolicyStatus: {
            path: string;
            /**
             * @description what becomes of a capability that no entry covers
             * @enum {string}
             */
            mode: "strict" | "prompt" | "permissive";
            problem: string | null;
            /** @description entries without effect */
            findings: string[];
        };
        /** @description The answer to a prompt. */
        PromptAnswer: {
            session_id: string;
            /** @constant */
            status: "complete";
            message_id: string;
            /** @description the text */
            content: string;
            /** @description the same */
            response: string;
            /** @description what the module answered */
            result: unknown;
        };
        /** @description A descriptor that is not used. */
        Quarantined: {
            /** @description its file */
            descriptor: string;
            /** @description why, for people */
            reason: string;
        };
        /** @description A question that waits for a person. */
        Question: {
            id: string;
            prompt: string;
            /** @description the answers there are */
            options: string[];
            /** @description `hook NAME`, `policy` or a module */
            asked_by: string;
            module: string;
            op: string;
            request_id: string | null;
            session_id: string | null;
            timeout_s: number;
            /** @description until the default applies */
            left_s: number;
            /**
             * @description what it comes to if nobody answers
             * @enum {string}
             */
            default: "allow" | "deny";
            /** @description what is to be filled in to allow it: a JSON Schema */
            form?: Record<string, unknown>;
            /** @description what the module that asks calls it */
            call_id?: string;
        };
        /** @description A question that was asked, or decided: an item of a stream. */
        QuestionChange: {
            approval: components["schemas"]["Question"];
            decision?: components["schemas"]["Decision"];
        };
        /** @description An item of a stream of questions. */
        QuestionItem: components["schemas"]["QuestionChange"] | components["schemas"]["StreamNotice"];
        /** @description The questions that wait, the oldest first. */
        Questions: {
            approvals: components["schemas"]["Question"][];
        };
        /** @description An entry of the journal with a name of its registry: by `event`. */
        RegisteredEntry: (components["schemas"]["JournalEntry"] & {
            session_id: string;
            data: {
                plan: unknown;
            };
            /** @constant */
            event: "session:start";
        }) | (components["schemas"]["JournalEntry"] & {
            session_id: string;
            data: {
                parent: unknown;
            };
            /** @constant */
            event: "session:fork";
        }) | (components["schemas"]["JournalEntry"] & {
            session_id: string;
            /** @constant */
            event: "session:end";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                path: unknown;
                module: unknown;
            };
            /** @constant */
            event: "mount:add";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                path: unknown;
            };
            /** @constant */
            event: "mount:remove";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                event: unknown;
            };
            /** @constant */
            event: "hook:register";
        }) | (components["schemas"]["JournalEntry"] & {
            /** @constant */
            event: "context:get";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                key: unknown;
            };
            /** @constant */
            event: "context:set";
        }) | (components["schemas"]["JournalEntry"] & {
            /** @constant */
            event: "context:pre_compact";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                delta_bytes: unknown;
            };
            /** @constant */
            event: "context:post_compact";
        }) | (components["schemas"]["JournalEntry"] & {
            module: string;
            status: string;
            duration_ms: number;
            data: {
                op: unknown;
            };
            /** @constant */
            event: "module:invoke";
        }) | (components["schemas"]["JournalEntry"] & {
            status: string;
            data: {
                capability: unknown;
            };
            /** @constant */
            event: "policy:decision";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                uri: unknown;
                bytes: unknown;
            };
            /** @constant */
            event: "artifact:write";
        }) | (components["schemas"]["JournalEntry"] & {
            status: string;
            data: {
                uri: unknown;
            };
            /** @constant */
            event: "artifact:read";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                version: unknown;
                pid: unknown;
            };
            /** @constant */
            event: "daemon:start";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                cause: unknown;
            };
            /** @constant */
            event: "daemon:stop";
        }) | (components["schemas"]["JournalEntry"] & {
            by: components["schemas"]["Asker"];
            data: {
                op: unknown;
            };
            /** @constant */
            event: "daemon:command";
        }) | (components["schemas"]["JournalEntry"] & {
            module: string;
            data: {
                from: unknown;
                to: unknown;
                cause: unknown;
            };
            /** @constant */
            event: "module:state";
        }) | (components["schemas"]["JournalEntry"] & {
            module: string;
            /** @description how it failed */
            error: components["schemas"]["ErrorV1"];
            /** @constant */
            event: "module:error";
        }) | (components["schemas"]["JournalEntry"] & {
            module: string;
            data: {
                instance: unknown;
                changes: unknown;
            };
            /** @constant */
            event: "module:description";
        }) | (components["schemas"]["JournalEntry"] & {
            /** @description how it failed */
            error: components["schemas"]["ErrorV1"];
            data: {
                path: unknown;
            };
            /** @constant */
            event: "mount:quarantine";
        }) | (components["schemas"]["JournalEntry"] & {
            session_id: string;
            data: {
                revision: unknown;
                patch: unknown;
            };
            /** @constant */
            event: "session:patch";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                count: unknown;
            };
            /** @constant */
            event: "journal:dropped";
        }) | (components["schemas"]["JournalEntry"] & {
            module: string;
            data: {
                count: unknown;
            };
            /** @constant */
            event: "hook:dropped";
        }) | (components["schemas"]["JournalEntry"] & {
            data: {
                id: unknown;
                prompt: unknown;
            };
            /** @constant */
            event: "approval:request";
        }) | (components["schemas"]["JournalEntry"] & {
            status: string;
            data: {
                id: unknown;
                answer: unknown;
            };
            /** @constant */
            event: "approval:decision";
        });
        /** @description What a reload did, or would do. */
        Reload: {
            dry_run: boolean;
            /** @description how many were applied */
            reloads: number;
            added: components["schemas"]["NamedDescriptor"][];
            removed: components["schemas"]["NamedDescriptor"][];
            changed: components["schemas"]["ChangedDescriptor"][];
            moved: components["schemas"]["MovedDescriptor"][];
            unchanged: string[];
            quarantined: components["schemas"]["Quarantined"][];
            unrunnable: components["schemas"]["Quarantined"][];
            policy: string | null;
            policy_problem: string | null;
        };
        /** @description Who serves the prompts of a session. */
        Roles: {
            agent?: string;
            orchestrator?: string;
            context?: string;
            provider?: string;
            tools?: string[];
        };
        /** @description A session. */
        Session: {
            /** @description as `session_id` */
            id: string;
            /** @description the agent of its roles */
            agent_name: string | null;
            session_id: string;
            title: string | null;
            cwd: string | null;
            /**
             * @description what it is doing
             * @enum {string}
             */
            status: "idle" | "busy" | "cancelled" | "error" | "ended";
            /** @description of the state */
            revision: number;
            /** @description Unix time in seconds */
            created: number;
            updated: number;
            ended: number | null;
            owner: string | null;
            /** @description what it was forked from */
            parent: components["schemas"]["SessionParent"] | null;
            roles: components["schemas"]["Roles"];
            in_flight: number;
            /** @description how many have ended */
            invocations: number;
            /** @description prompts that wait */
            queued: number;
        };
        /** @description How many sessions there are. */
        SessionCounts: {
            live: number;
            busy: number;
            /** @description that can still be shown */
            ended: number;
        };
        /** @description An event of AMCP: what becomes of a session or of a prompt. */
        SessionEvent: {
            type: components["schemas"]["SessionEventType"];
            session_id: string | null;
            /** @description ISO 8601 */
            timestamp: string;
            payload: Record<string, unknown>;
        };
        /**
         * @description What happened.
         * @enum {string}
         */
        SessionEventType: "connected" | "disconnected" | "heartbeat" | "session.created" | "session.deleted" | "session.status_changed" | "message.start" | "message.chunk" | "message.complete" | "message.error" | "tool.call_start" | "tool.call_complete" | "tool.call_error" | "agent.thinking" | "agent.idle" | "prompt.received" | "prompt.started" | "prompt.queued" | "prompt.rejected";
        /** @description The last invocations of a session. */
        SessionHistory: {
            session_id: string;
            /** @description of all */
            invocations: number;
            history: components["schemas"]["PastInvocation"][];
        };
        /** @description What a session was forked from. */
        SessionParent: {
            session_id: string;
            revision: number;
        };
        /** @description The state of a session. */
        SessionState: {
            [key: string]: unknown;
        };
        /** @description A page of sessions, the newest first. */
        Sessions: {
            sessions: components["schemas"]["Session"][];
            /** @description `after` of the next page */
            next: string | null;
            live: number;
            busy: number;
            ended: number;
        };
        /** @description Spans for a collector of OpenTelemetry, since the daemon started. */
        SpanCounts: {
            exported: number;
            /** @description the collector did not take them */
            failed: number;
            /** @description there was no room for them */
            dropped: number;
            waiting: number;
        };
        /** @description A turn of the event loop that took long. */
        Stall: {
            ms: number;
            /** @description `NAME#N`, `client N` or `the daemon` */
            culprit: string | null;
            doing: string | null;
            /** @description Unix time in seconds */
            ts: number;
        };
        /** @description 4.2 */
        StatePatchEvent: {
            /** @constant */
            version: "0";
            /** @constant */
            type: "state_patch";
            requestId?: string | null;
            /** @description ISO-8601 datetime */
            timestamp?: string | null;
            patch: Record<string, unknown>;
        };
        /** @description What runs, and what does not and why. */
        Status: {
            daemon: components["schemas"]["DaemonStatus"];
            /** @description the gateway, if there is one; null for who may not see all modules */
            http?: components["schemas"]["GatewayStatus"] | null;
            modules: components["schemas"]["ModuleStatus"][];
            quarantined: components["schemas"]["Quarantined"][];
        };
        /** @description What the daemon says of a stream itself, as that items were left out. */
        StreamNotice: {
            message: string;
        };
        /** @description Work that has taken long, and is not over. */
        Stuck: {
            doing: string;
            for_s: number;
            /** @description how much more of its kind waits for it */
            waiting: number;
        };
        /** @description The modules of the kind tool. */
        Tools: {
            tools: components["schemas"]["ModuleStatus"][];
        };
        /** @description A process that traces another one, such as a debugger. */
        Tracer: {
            pid: number;
            name: string;
        };
        /** @description 4.4 */
        UiEvent: {
            /** @constant */
            version: "0";
            /** @constant */
            type: "ui_event";
            requestId?: string | null;
            /** @description ISO-8601 datetime */
            timestamp?: string | null;
            event: string;
            payload?: Record<string, unknown> | null;
        };
        /** @description All that is known of an asset. */
        WholeAsset: components["schemas"]["Asset"] & {
            /** @description what the module said of it */
            metadata: Record<string, unknown> | null;
        };
        /** @description A session with its state and its history. */
        WholeSession: components["schemas"]["Session"] & {
            plan: Record<string, unknown> | null;
            state: components["schemas"]["SessionState"];
            history: components["schemas"]["PastInvocation"][];
        };
        /**
         * Narratoria Spec 001 event, version 0
         * @description One line of a tool's stdout (sections 3 and 4). Additional fields are allowed and ignored; null in the place of an optional one is read as its absence.
         */
        WireEvent: components["schemas"]["LogEvent"] | components["schemas"]["StatePatchEvent"] | components["schemas"]["AssetEvent"] | components["schemas"]["UiEvent"] | components["schemas"]["ErrorEvent"] | components["schemas"]["DoneEvent"];
        /** @description An error of the route itself. */
        RouteError: {
            /** @description what is wrong, for people */
            error: string;
            /** @enum {string} */
            code: "BAD_REQUEST" | "VALIDATION_ERROR" | "INVALID_JSON" | "UNAUTHORIZED" | "FORBIDDEN" | "INVALID_TOKEN" | "INVALID_API_KEY" | "NOT_FOUND" | "SESSION_NOT_FOUND" | "TOOL_NOT_FOUND" | "AGENT_NOT_FOUND" | "CONFLICT" | "SESSION_BUSY" | "ALREADY_EXISTS" | "RATE_LIMITED" | "INTERNAL_ERROR" | "LLM_ERROR" | "TOOL_ERROR" | "MCP_ERROR" | "TIMEOUT" | "CONNECTION_CLOSED" | "CONNECTION_FAILED" | "PROTOCOL_ERROR" | "UNSUPPORTED_ACTION" | "INVALID_MESSAGE" | "CANCELLED";
            details?: Record<string, unknown>;
        };
        /** @description An error of the route itself. */
        RpcError: {
            /** @constant */
            jsonrpc: "2.0";
            id?: string | number | null;
            error: {
                code: number;
                message: string;
                data?: unknown;
            };
        };
        /** Amplifier Event v1 */
        AmplifierEvent: {
            id: string;
            ts: number;
            event: string;
            component: string;
            module?: string | null;
            status?: string | null;
            duration_ms?: number | null;
            data?: Record<string, unknown> | null;
            error?: Record<string, unknown> | null;
            session_id?: string | null;
            request_id?: string | null;
            span_id?: string | null;
        };
        /** Module Descriptor v1 */
        BaseDescriptor: {
            name: string;
            /** @enum {string} */
            kind: "provider" | "tool" | "agent" | "hook" | "orchestrator" | "context";
            transport: {
                /** @enum {string} */
                type: "stdio" | "http";
                command?: string[];
                url?: string;
            };
            capabilities: string[];
            version?: string;
        };
        /**
         * Narratoria Spec 001 tool input, version 0
         * @description Section 6: what the host may write to a tool's stdin.
         */
        ToolInput: {
            requestId: string;
            tool: string;
            operation: string;
            input: Record<string, unknown>;
        };
        /** Plan Schema v1 */
        Plan: {
            goal: string;
            inputs: Record<string, unknown>;
        };
        /** stdiod configuration v1 */
        Configuration: {
            /** @description an array of the directories that DIR... would name */
            directories?: string[];
            /** @description the control socket, as --socket */
            socket?: string;
            /**
             * @description "own": a process of a module that connects to the control socket has what the module is granted, and nothing else. "user": it may do what its user may
             * @enum {string}
             */
            socket_for_modules?: "own" | "user";
            /** @description where sessions, assets, logs and the journal are kept, as --data-dir */
            data_dir?: string;
            /**
             * @description "console" or "json", as --log-format
             * @enum {string}
             */
            log_format?: "console" | "json";
            /**
             * @description "auto": the highest rung there is, and for tools without a memory limit at most subreaper; or one of "cgroup2", "subreaper", "process_group", without which the daemon does not start
             * @enum {string}
             */
            containment?: "auto" | "cgroup2" | "subreaper" | "process_group";
            /** @description a limit for all modules together: above it, the one that uses most is ended, with oom */
            memory_ceiling_bytes?: number;
            /** @description false as --no-watch: changed descriptors are not picked up without stdiod reload */
            watch?: boolean;
            /** @description for how many days entries of the journal are kept; 30 */
            journal_days?: number;
            /** @description how much the journal may hold; 536870912 (512 MiB), at least 1048576 */
            journal_bytes?: number;
            /**
             * @description "process": what an answer acknowledges survives kill -9. "power": a power cut, too, by a disk sync for each group of entries
             * @enum {string}
             */
            durability?: "process" | "power";
            /**
             * @description "in_place", or "copy" to keep a copy of each asset
             * @enum {string}
             */
            assets?: "in_place" | "copy";
            /** @description how much the copies may take together; 1 GiB if left out */
            asset_store_bytes?: number;
            /** @description the path of an env file for all modules, or an array of such. Only the daemon and doctor read it, not check or invoke --descriptor */
            env_file?: string | string[];
            /** @description the file that says what modules may do; nothing if it is left out */
            policy?: string;
            /** @description where HTTP is served: "off", "sock" or "HOST:PORT", as --http */
            http?: string;
            /** @description the certificate for HTTPS, as --http-cert */
            http_cert?: string;
            /** @description its key, as --http-key */
            http_key?: string;
            /** @description true as --http-insecure: HTTP without TLS at any address */
            http_insecure?: boolean;
            /** @description an array of the origins whose pages may use HTTP, such as "https://example.org"; only its own if left out */
            http_origins?: string[];
            /** @description a table about MCP clients: views; keep, how long a daemon stays that stdiod mcp has started; session_idle_s, how long a session over HTTP stays */
            mcp?: {
                /** @description what clients see, by the name of the view */
                views?: {
                    [key: string]: {
                        /** @description globs over MODULE and MODULE.OP, as for the caller, of any kind but hooks; all modules of kind tool if left out */
                        modules?: string[];
                        /** @description false: ops under their own names, as far as MCP allows these; true if left out */
                        prefix?: boolean;
                        /** @description the users that may use it, by name, * for any characters; everybody if left out */
                        for?: string[];
                    };
                };
                /** @description how many seconds a session over HTTP stays that nobody uses */
                session_idle_s?: number;
                /** @description how many seconds a daemon stays that stdiod mcp has started, or "always" */
                keep?: "always" | number;
            };
        };
        /**
         * stdiod module descriptor v1
         * @description Module Descriptor v1 plus optional fields. Unknown fields are ignored at the top level and in transport, and refused in everything within those.
         */
        Descriptor: {
            /** @description What clients call it: 1 to 128 characters, without / and control characters. Not ., .. or supervisor */
            name: string;
            /**
             * @description provider, tool, agent, hook, orchestrator or context. A hook has a section of its own
             * @enum {string}
             */
            kind: "provider" | "tool" | "agent" | "hook" | "orchestrator" | "context";
            transport: components["schemas"]["Transport"];
            /**
             * @description What the module may be granted when it calls the host: module.invoke, module.invoke:MODULE.OP, session.read, session.write, event.emit:NAME, log, roots.list, user.ask, model.sample, model.sample:MODULE, or an entry that covers several, such as session.*. The operator's policy decides which of them it gets
             * @default []
             */
            capabilities?: string[];
            /** @description Its version, any string */
            version?: string;
            /** @description One sentence */
            description?: string;
            /** @description Its ops, each with a JSON Schema (2020-12) of its args. Other ops (unsupported_op) and args that do not fit (bad_request) do not reach the module. A module of the dialect module may give them in its answer to describe instead */
            inputs?: {
                [key: string]: Record<string, unknown> | boolean;
            };
            /** @description The same for results; not enforced */
            outputs?: {
                [key: string]: Record<string, unknown> | boolean;
            };
            /** @description For the kind hook: what it sees, and which invocations it gates */
            hook?: {
                /**
                 * @description Globs of the names of events that it is told after they happened
                 * @default []
                 */
                observe?: string[];
                /**
                 * @description The gates that it answers: tool:pre before an invocation, tool:post after one that succeeded, tool:error after one that failed
                 * @default []
                 */
                gate?: ("tool:pre" | "tool:post" | "tool:error")[];
                /**
                 * @description Globs of the names of the modules whose invocations it gates
                 * @default [
                 *       "*"
                 *     ]
                 */
                modules?: string[];
                /**
                 * @description Of several gates, the one with the lower priority is asked first; at least 0
                 * @default 50
                 */
                priority?: number;
                /**
                 * @description What happens when the gate crashes, times out or is not there. closed: the invocation is denied. open: it goes on
                 * @default closed
                 * @enum {string}
                 */
                on_failure?: "closed" | "open";
                /**
                 * @description For the answer of a gate, in seconds
                 * @default 5
                 */
                timeout_s?: number;
                /**
                 * @description How many events may wait for an observer; at least 1
                 * @default 1000
                 */
                queue?: number;
                /**
                 * @description Which event is lost when that queue is full: the oldest or the newest
                 * @default oldest
                 * @enum {string}
                 */
                drop?: "oldest" | "newest";
            } | {
                observe: unknown;
            } | {
                gate: unknown;
            };
            /**
             * @description false: it is not started, its ops are in no list, a hook gates nothing. stdiod disable and enable write it
             * @default true
             */
            enabled?: boolean;
            /** @description How it is watched, bounded and restarted */
            supervision?: {
                /**
                 * @description eager: with the daemon. lazy: with its first request
                 * @default eager
                 * @enum {string}
                 */
                start?: "eager" | "lazy";
                /**
                 * @description Whether it is restarted after it ended by itself. permanent: always. transient: unless it exited with 0. temporary: never. on-demand, the default for mcp: after it exited with 0 while idle, with the next request
                 * @default permanent
                 * @enum {string}
                 */
                restart?: "permanent" | "transient" | "temporary" | "on-demand";
                /**
                 * @description Exit codes (0 to 255) and signals ("SIGKILL") after which it is restarted even if restart says no
                 * @default []
                 */
                restart_on?: (number | ("SIGHUP" | "SIGINT" | "SIGQUIT" | "SIGILL" | "SIGTRAP" | "SIGABRT" | "SIGBUS" | "SIGFPE" | "SIGKILL" | "SIGUSR1" | "SIGSEGV" | "SIGUSR2" | "SIGPIPE" | "SIGALRM" | "SIGTERM" | "SIGSTKFLT" | "SIGXCPU" | "SIGXFSZ" | "SIGVTALRM" | "SIGPROF" | "SIGIO" | "SIGPWR" | "SIGSYS"))[];
                /**
                 * @description Exit codes and signals after which it is never restarted: it is down until stdiod start. An entry must not stand in both lists
                 * @default []
                 */
                never_on?: (number | ("SIGHUP" | "SIGINT" | "SIGQUIT" | "SIGILL" | "SIGTRAP" | "SIGABRT" | "SIGBUS" | "SIGFPE" | "SIGKILL" | "SIGUSR1" | "SIGSEGV" | "SIGUSR2" | "SIGPIPE" | "SIGALRM" | "SIGTERM" | "SIGSTKFLT" | "SIGXCPU" | "SIGXFSZ" | "SIGVTALRM" | "SIGPROF" | "SIGIO" | "SIGPWR" | "SIGSYS"))[];
                /**
                 * @description More crashes than this within period_s, and it is failed
                 * @default 5
                 */
                intensity?: number;
                /**
                 * @description The period of intensity. After so long in good health its crashes are forgotten
                 * @default 60
                 */
                period_s?: number;
                /** @description How long it waits before it is restarted */
                backoff?: {
                    /**
                     * @description The first wait, in seconds
                     * @default 0.5
                     */
                    initial_s?: number;
                    /**
                     * @description By what each further wait is multiplied; at least 1
                     * @default 2
                     */
                    factor?: number;
                    /**
                     * @description The longest wait, in seconds
                     * @default 60
                     */
                    max_s?: number;
                    /**
                     * @description The share of a wait, from 0 to 1, by which it is shortened at random
                     * @default 0.25
                     */
                    jitter?: number;
                };
                /**
                 * @description How long after it failed it is tried once more
                 * @default 300
                 */
                retry_failed_s?: number;
                /**
                 * @description Modules that must be ready before it is started, and that are stopped after it
                 * @default []
                 */
                depends_on?: string[];
                /** @description How long each thing may take, in seconds */
                timeouts?: {
                    /**
                     * @description From the start of its process until health is ok. For mcp 60, and 300 where the command may download its program
                     * @default 10
                     */
                    start_s?: number;
                    /**
                     * @description For the answer to a health probe
                     * @default 2
                     */
                    health_s?: number;
                    /**
                     * @description For the answer to describe
                     * @default 5
                     */
                    describe_s?: number;
                    /**
                     * @description For the answer to an invoke, the wait in the queue included. For mcp 120, and progress renews it
                     * @default 30
                     */
                    invoke_s?: number;
                    /**
                     * @description For mcp: the longest that a call may take, whatever progress it tells of
                     * @default 3600
                     */
                    total_s?: number;
                    /**
                     * @description The longest time for which it may print nothing while it serves a request; null for no bound
                     * @default null
                     */
                    silence_s?: number | null;
                    /**
                     * @description For its exit after the end of its stdin
                     * @default 2
                     */
                    exit_s?: number;
                    /**
                     * @description For the exit of a per-invocation process after its done; never beyond the deadline of the request
                     * @default 10
                     */
                    linger_s?: number;
                    /**
                     * @description For requests in flight when it is stopped, and then again for its exit after SIGTERM, before SIGKILL
                     * @default 5
                     */
                    stop_s?: number;
                    /**
                     * @description For transport.prepare
                     * @default 600
                     */
                    prepare_s?: number;
                };
                /** @description How an idle process is probed */
                health?: {
                    /**
                     * @description How often an idle persistent module is asked for its health
                     * @default 10
                     */
                    interval_s?: number;
                    /**
                     * @description After this many misses in a row its process is replaced; after the first it is degraded
                     * @default 3
                     */
                    failures?: number;
                };
                /** @description What it may use; null is no limit */
                limits?: {
                    /**
                     * @description The memory of all its processes together; at least 1048576. Above it they are ended (oom)
                     * @default null
                     */
                    memory_bytes?: number | null;
                    /**
                     * @description The longest line it may print; at least 1024. A longer line fails the request
                     * @default 8388608
                     */
                    line_bytes?: number;
                    /**
                     * @description How many file descriptors each of its processes may have; at least 8
                     * @default null
                     */
                    open_files?: number | null;
                    /**
                     * @description How many processes it may have; at least 1. Above it they are ended
                     * @default null
                     */
                    processes?: number | null;
                    /**
                     * @description Seconds of processor time for each of its processes; then SIGXCPU, and SIGKILL a second later
                     * @default null
                     */
                    cpu_s?: number | null;
                };
                /**
                 * @description How many requests it is given at a time; 16 for mcp. For per-invocation: how many processes run at a time
                 * @default 1
                 */
                concurrency?: number;
                /**
                 * @description How many more requests may wait; the next one gets queue_full. 0: none may wait
                 * @default 1024
                 */
                queue?: number;
                /** @description How many processes there are, and when they are replaced */
                instances?: {
                    /**
                     * @description How many processes it starts with, and keeps when it is idle. 0 starts with one, and lets idle_stop_s stop that one too
                     * @default 1
                     */
                    min?: number;
                    /**
                     * @description How many processes it may have; one more while a process is replaced by a newer one
                     * @default 1
                     */
                    max?: number;
                    /**
                     * @description Seconds without a request after which a process beyond min is stopped; null: never
                     * @default null
                     */
                    idle_stop_s?: number | null;
                    /**
                     * @description After so many requests (or up to a tenth fewer) a process is replaced once its successor is ready; null: never
                     * @default null
                     */
                    max_requests?: number | null;
                    /**
                     * @description The same by age, in seconds since it was ready
                     * @default null
                     */
                    max_age_s?: number | null;
                };
                /**
                 * @description Whether its successor may run beside it when its descriptor changes. false, for a port or a lock: it ends first
                 * @default true
                 */
                overlap?: boolean;
                /**
                 * @description For per-invocation: processes started ahead, for programs that only prepare before they read their request
                 * @default 0
                 */
                warm?: number;
                /**
                 * @description Whether it is replaced when its program changes: command[0] if that is a path, and each argument that is a file, from cwd
                 * @default false
                 */
                watch?: boolean;
            };
        } & {
            [key: string]: unknown;
        };
        /** stdiod policy v1 */
        Policy: {
            /**
             * @description what becomes of a capability that no entry covers: "strict" denies it, "permissive" allows it, "prompt" asks a person; "strict"
             * @enum {string}
             */
            mode?: "strict" | "prompt" | "permissive";
            /** @description an array of capabilities that modules get if their descriptors list them */
            allow?: string[];
            /** @description an array of capabilities that modules do not get, whatever allows them */
            deny?: string[];
            /** @description a table for each module, by its name, with a mode, allow and deny of its own */
            modules?: {
                [key: string]: {
                    /**
                     * @description what becomes of a capability that no entry covers: "strict" denies it, "permissive" allows it, "prompt" asks a person; "strict"
                     * @enum {string}
                     */
                    mode?: "strict" | "prompt" | "permissive";
                    /** @description an array of capabilities that modules get if their descriptors list them */
                    allow?: string[];
                    /** @description an array of capabilities that modules do not get, whatever allows them */
                    deny?: string[];
                };
            };
        };
        TranscriptHeader: {
            /**
             * @description the version of the format
             * @constant
             */
            transcript: 1;
            /** @description the module's name */
            module: string;
            /** @description the dialect that was spoken */
            protocol: string;
            /**
             * @description whether a process served many requests or one
             * @enum {string}
             */
            lifecycle: "persistent" | "per-invocation";
            /** @description stdiod-descriptor.v1, with all defaults */
            descriptor: Record<string, unknown>;
            /** @description when the recording began: ISO 8601, UTC */
            recorded: string;
            /** @description the version that recorded it */
            stdiod: string;
            /** @description the descriptor's file */
            source?: string | null;
        };
        TranscriptEntry: {
            /** @description seconds since the recording began, monotonic */
            at_s: number;
            /**
             * @description whose entry it is
             * @enum {string}
             */
            from: "host" | "module" | "stderr" | "process" | "recorder";
            /** @description the process, as MODULE#NUMBER */
            instance?: string | null;
        } & (components["schemas"]["TranscriptLine"] | components["schemas"]["TranscriptRequest"] | components["schemas"]["TranscriptOutcome"] | components["schemas"]["TranscriptAnswer"] | components["schemas"]["TranscriptEvent"]);
        TranscriptCount: number;
        /** @description A line that was said, without its newline, or a piece of one. With bytes and sha256, in older transcripts, it is its beginning, and they are of all of it. */
        TranscriptLine: {
            /**
             * @description who said it
             * @enum {string}
             */
            from?: "host" | "module" | "stderr";
            /** @description the process, as MODULE#NUMBER */
            instance: string;
            /** @description the line or piece, without a newline */
            line?: string;
            /** @description the same, if it is not UTF-8 */
            base64?: string;
            /**
             * @description whether a newline came after it; if not, the next entry of the stream has the rest of the line
             * @default true
             */
            newline?: boolean;
            bytes?: components["schemas"]["TranscriptCount"];
            /** @description the digest of the whole line, if only its beginning is kept */
            sha256?: string;
        };
        /** @description What the module was asked. */
        TranscriptRequest: {
            /**
             * @description requests are the host's
             * @constant
             */
            from?: "host";
            /** @description the process, as MODULE#NUMBER */
            instance: string;
            /** @description the host's id of the request */
            request_id: string;
            /**
             * @description what was asked
             * @enum {string}
             */
            operation: "health" | "describe" | "invoke";
            /** @description the op, of an invoke */
            op?: string | null;
            /** @description the args, of an invoke; absent if there are none */
            args?: Record<string, unknown> | null;
            /** @description the session that the request belongs to */
            session_id?: string | null;
        };
        /** @description How a request ended, as the host answered it. */
        TranscriptOutcome: {
            /**
             * @description outcomes are the host's
             * @constant
             */
            from?: "host";
            /** @description the process, as MODULE#NUMBER */
            instance: string;
            /** @description the request that ended */
            request_id: string;
            /**
             * @description what was asked
             * @enum {string}
             */
            operation: "health" | "describe" | "invoke";
            /** @description the op, of an invoke */
            op?: string | null;
            /** @description ok, and the result or the error, as a response has them */
            outcome: {
                /** @description whether it ended well */
                ok: boolean;
            };
        };
        /** @description How a call of the module to the host was answered. */
        TranscriptAnswer: {
            /**
             * @description answers are the host's
             * @constant
             */
            from?: "host";
            /** @description the process, as MODULE#NUMBER */
            instance: string;
            /** @description the request that the call belongs to */
            request_id?: string | null;
            /** @description the module's id of the call */
            call_id: string;
            /** @description ok, and the result or the error */
            outcome: {
                /** @description whether it ended well */
                ok: boolean;
            };
        };
        /** @description What became of the process, or of the recording. */
        TranscriptEvent: {
            pid?: components["schemas"]["TranscriptCount"];
            /** @description the process had printed the beginning of a line */
            mid_line?: boolean;
            /** @description of a process that exited by itself */
            exit_code?: number;
            /** @description the number of the signal that ended the process */
            signal?: number;
            /** @description whether the host wanted it to end */
            stopped_by_host?: boolean;
            /** @description the limit that it was ended for, with the figures */
            limit?: Record<string, unknown>;
            bytes?: components["schemas"]["TranscriptCount"];
            lines?: components["schemas"]["TranscriptCount"];
            missing_bytes?: components["schemas"]["TranscriptCount"];
            /** @description why the recording ended */
            why?: string;
            /**
             * @description the lines of which bytes are missing
             * @enum {string}
             */
            stream?: "host" | "module" | "stderr";
        } & ({
            /**
             * @description whose entry it is
             * @constant
             */
            from?: "process";
            /** @description the process, as MODULE#NUMBER */
            instance: string;
            /**
             * @description what happened
             * @enum {string}
             */
            event?: "spawned" | "attached" | "stdin_closed" | "eof";
        } | {
            /**
             * @description whose entry it is
             * @constant
             */
            from?: "process";
            /** @description the process, as MODULE#NUMBER */
            instance: string;
            /**
             * @description what happened
             * @constant
             */
            event?: "exited";
        } | {
            /**
             * @description whose entry it is
             * @constant
             */
            from?: "recorder";
            /**
             * @description what happened
             * @constant
             */
            event?: "missing";
        } | {
            /**
             * @description whose entry it is
             * @constant
             */
            from?: "recorder";
            /**
             * @description what happened
             * @constant
             */
            event?: "ended";
        });
        /** A line of a stdiod transcript, version 1: the header is the first, an entry any other */
        Transcript: components["schemas"]["TranscriptHeader"] | components["schemas"]["TranscriptEntry"];
        /** @description How it is run, or reached */
        Transport: components["schemas"]["StdioTransport"] | components["schemas"]["HttpTransport"];
        StdioTransport: {
            /** @constant */
            type: "stdio";
            /**
             * @description The program and its arguments; no shell reads them. A program with a slash is a path from the descriptor's folder, any other is looked up in PATH. ${STDIOD_CIDFILE} is a file for the id of a container
             * @default []
             */
            command: string[];
            /**
             * @description A command that fetches or builds what command runs, once before the first start
             * @default []
             */
            prepare?: string[];
            /**
             * @description For http, where it is required: the address of the service, to which /health, /describe and /invoke are added. No user, password, query or fragment
             * @default
             */
            url?: string;
            /**
             * @description For http: headers of each request. ${NAME} in a value is the daemon's variable NAME; if that is not set, the service is not asked
             * @default {}
             */
            headers?: {
                [key: string]: string;
            };
            /**
             * @description The dialect it speaks: module or narratoria (protocol.md), mcp (mcp.md), or exec for any command line tool
             * @default module
             * @enum {string}
             */
            protocol?: "exec" | "mcp" | "module" | "narratoria";
            /**
             * @description persistent: one process serves many requests; the default of module and the default of mcp, which has no other. per-invocation: each request has a process, whose exit status counts; the default of narratoria and the default of exec, which have no other
             * @enum {string}
             */
            lifecycle?: "persistent" | "per-invocation";
            /**
             * @description flat: a narratoria tool reads args with requestId merged in
             * @default envelope
             * @enum {string}
             */
            input?: "envelope" | "flat";
            /**
             * @description What a line outside the protocol does. tolerant: the line is set aside with a warning; the default of module, the default of mcp and the default of exec, which has no lines to keep to. strict: the line ends the request; the default of narratoria.
             * @enum {string}
             */
            stdout?: "strict" | "tolerant";
            /** @description For the protocol exec: what each op runs */
            exec?: {
                /** @description For exec: its ops by name */
                ops: {
                    [key: string]: {
                        /**
                         * @description The arguments after command; {name} is replaced by the arg of that name
                         * @default []
                         */
                        args?: string[];
                        /**
                         * @description What the command reads; {name} is replaced by the arg of that name
                         * @default
                         */
                        stdin?: string;
                        /**
                         * @description What its output is: text, json, jsonl (a list of JSON values, one a line), lines, or bytes, which become an asset
                         * @default text
                         * @enum {string}
                         */
                        stdout?: "text" | "json" | "jsonl" | "lines" | "bytes";
                        /**
                         * @description Exit codes that count as success, beside 0
                         * @default []
                         */
                        ok_codes?: number[];
                        /**
                         * @description Whether an arg may make an argument that begins with -
                         * @default false
                         */
                        options?: boolean;
                        /**
                         * @description The MIME type of bytes
                         * @default application/octet-stream
                         */
                        media_type?: string;
                    };
                };
            };
            /** @description For the protocol mcp: how it is spoken with */
            mcp?: {
                /**
                 * @description For mcp: the era of the protocol to begin with, modern or legacy; auto finds out
                 * @default auto
                 * @enum {string}
                 */
                era?: "auto" | "modern" | "legacy";
                /**
                 * @description For mcp: the folders that the server is told when it asks for its roots, from the descriptor's folder
                 * @default []
                 */
                roots?: string[];
            };
            /**
             * @description The folder it runs in, from the descriptor's folder
             * @default .
             */
            cwd?: string;
            /**
             * @description Variables to set. ${NAME} in a value is a variable of the daemon or an env file; if it is not set, the module is not started
             * @default {}
             */
            env?: {
                [key: string]: string;
            };
            /**
             * @description The path of an env file, from the descriptor's folder, or an array of such. It is read anew at each start
             * @default []
             */
            env_file?: string | string[];
            /**
             * @description Names of variables of the daemon to pass on. One that is not set is named in status; with a ? after its name nothing is said
             * @default []
             */
            pass_env?: string[];
            /** @description Whether ${NAME} and ${NAME:-default} are replaced in command, prepare, cwd, env_file and env. The default of mcp is true, that of all others false */
            expand?: boolean;
        } & {
            [key: string]: unknown;
        };
        HttpTransport: {
            /** @constant */
            type: "http";
            /**
             * @description The program and its arguments; no shell reads them. A program with a slash is a path from the descriptor's folder, any other is looked up in PATH. ${STDIOD_CIDFILE} is a file for the id of a container
             * @default []
             */
            command?: string[];
            /**
             * @description A command that fetches or builds what command runs, once before the first start
             * @default []
             */
            prepare?: string[];
            /**
             * @description For http, where it is required: the address of the service, to which /health, /describe and /invoke are added. No user, password, query or fragment
             * @default
             */
            url: string;
            /**
             * @description For http: headers of each request. ${NAME} in a value is the daemon's variable NAME; if that is not set, the service is not asked
             * @default {}
             */
            headers?: {
                [key: string]: string;
            };
            /**
             * @description The dialect it speaks: module or narratoria (protocol.md), mcp (mcp.md), or exec for any command line tool
             * @default module
             * @enum {string}
             */
            protocol?: "exec" | "mcp" | "module" | "narratoria";
            /**
             * @description persistent: one process serves many requests; the default of module and the default of mcp, which has no other. per-invocation: each request has a process, whose exit status counts; the default of narratoria and the default of exec, which have no other
             * @enum {string}
             */
            lifecycle?: "persistent" | "per-invocation";
            /**
             * @description flat: a narratoria tool reads args with requestId merged in
             * @default envelope
             * @enum {string}
             */
            input?: "envelope" | "flat";
            /**
             * @description What a line outside the protocol does. tolerant: the line is set aside with a warning; the default of module, the default of mcp and the default of exec, which has no lines to keep to. strict: the line ends the request; the default of narratoria.
             * @enum {string}
             */
            stdout?: "strict" | "tolerant";
            /** @description For the protocol exec: what each op runs */
            exec?: {
                /** @description For exec: its ops by name */
                ops: {
                    [key: string]: {
                        /**
                         * @description The arguments after command; {name} is replaced by the arg of that name
                         * @default []
                         */
                        args?: string[];
                        /**
                         * @description What the command reads; {name} is replaced by the arg of that name
                         * @default
                         */
                        stdin?: string;
                        /**
                         * @description What its output is: text, json, jsonl (a list of JSON values, one a line), lines, or bytes, which become an asset
                         * @default text
                         * @enum {string}
                         */
                        stdout?: "text" | "json" | "jsonl" | "lines" | "bytes";
                        /**
                         * @description Exit codes that count as success, beside 0
                         * @default []
                         */
                        ok_codes?: number[];
                        /**
                         * @description Whether an arg may make an argument that begins with -
                         * @default false
                         */
                        options?: boolean;
                        /**
                         * @description The MIME type of bytes
                         * @default application/octet-stream
                         */
                        media_type?: string;
                    };
                };
            };
            /** @description For the protocol mcp: how it is spoken with */
            mcp?: {
                /**
                 * @description For mcp: the era of the protocol to begin with, modern or legacy; auto finds out
                 * @default auto
                 * @enum {string}
                 */
                era?: "auto" | "modern" | "legacy";
                /**
                 * @description For mcp: the folders that the server is told when it asks for its roots, from the descriptor's folder
                 * @default []
                 */
                roots?: string[];
            };
            /**
             * @description The folder it runs in, from the descriptor's folder
             * @default .
             */
            cwd?: string;
            /**
             * @description Variables to set. ${NAME} in a value is a variable of the daemon or an env file; if it is not set, the module is not started
             * @default {}
             */
            env?: {
                [key: string]: string;
            };
            /**
             * @description The path of an env file, from the descriptor's folder, or an array of such. It is read anew at each start
             * @default []
             */
            env_file?: string | string[];
            /**
             * @description Names of variables of the daemon to pass on. One that is not set is named in status; with a ? after its name nothing is said
             * @default []
             */
            pass_env?: string[];
            /** @description Whether ${NAME} and ${NAME:-default} are replaced in command, prepare, cwd, env_file and env. The default of mcp is true, that of all others false */
            expand?: boolean;
        } & {
            [key: string]: unknown;
        };
    };
    responses: {
        /** @description The request is not valid */
        400: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["RouteError"];
            };
        };
        /** @description There is no token, or not a valid one */
        401: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["RouteError"];
            };
        };
        /** @description The caller may not do that */
        403: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["RouteError"];
            };
        };
        /** @description Nothing has that name */
        404: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["RouteError"];
            };
        };
        /** @description It failed */
        default: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["RouteError"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type Agents = components['schemas']['Agents'];
export type Answered = components['schemas']['Answered'];
export type Asker = components['schemas']['Asker'];
export type Asset = components['schemas']['Asset'];
export type AssetEvent = components['schemas']['AssetEvent'];
export type Assets = components['schemas']['Assets'];
export type Breach = components['schemas']['Breach'];
export type Cancelled = components['schemas']['Cancelled'];
export type ChangedDescriptor = components['schemas']['ChangedDescriptor'];
export type DaemonStatus = components['schemas']['DaemonStatus'];
export type Decision = components['schemas']['Decision'];
export type DescribeReply = components['schemas']['DescribeReply'];
export type Description = components['schemas']['Description'];
export type DoneEvent = components['schemas']['DoneEvent'];
export type EndedSession = components['schemas']['EndedSession'];
export type ErrorEvent = components['schemas']['ErrorEvent'];
export type ErrorV1 = components['schemas']['ErrorV1'];
export type ExecutedTool = components['schemas']['ExecutedTool'];
export type GatewayStatus = components['schemas']['GatewayStatus'];
export type Health = components['schemas']['Health'];
export type HealthReply = components['schemas']['HealthReply'];
export type HeldBytes = components['schemas']['HeldBytes'];
export type HeldFor = components['schemas']['HeldFor'];
export type HookStatus = components['schemas']['HookStatus'];
export type Info = components['schemas']['Info'];
export type InvokeFailure = components['schemas']['InvokeFailure'];
export type InvokeResponse = components['schemas']['InvokeResponse'];
export type InvokeSuccess = components['schemas']['InvokeSuccess'];
export type Journal = components['schemas']['Journal'];
export type JournalEntry = components['schemas']['JournalEntry'];
export type JournalHeading = components['schemas']['JournalHeading'];
export type JournalItem = components['schemas']['JournalItem'];
export type JournalStatus = components['schemas']['JournalStatus'];
export type Kind = components['schemas']['Kind'];
export type LastExit = components['schemas']['LastExit'];
export type LastReload = components['schemas']['LastReload'];
export type Latency = components['schemas']['Latency'];
export type LogEvent = components['schemas']['LogEvent'];
export type LogItem = components['schemas']['LogItem'];
export type LogLine = components['schemas']['LogLine'];
export type LogLines = components['schemas']['LogLines'];
export type McpAgreement = components['schemas']['McpAgreement'];
export type ModuleCounters = components['schemas']['ModuleCounters'];
export type ModuleFailure = components['schemas']['ModuleFailure'];
export type ModuleInstance = components['schemas']['ModuleInstance'];
export type ModuleReply = components['schemas']['ModuleReply'];
export type ModuleState = components['schemas']['ModuleState'];
export type ModuleStatus = components['schemas']['ModuleStatus'];
export type ModuleSuccess = components['schemas']['ModuleSuccess'];
export type Modules = components['schemas']['Modules'];
export type MovedDescriptor = components['schemas']['MovedDescriptor'];
export type NamedDescriptor = components['schemas']['NamedDescriptor'];
export type ObservedEvents = components['schemas']['ObservedEvents'];
export type OfferedOps = components['schemas']['OfferedOps'];
export type OwnLog = components['schemas']['OwnLog'];
export type PastInvocation = components['schemas']['PastInvocation'];
export type PatchedState = components['schemas']['PatchedState'];
export type PolicyStatus = components['schemas']['PolicyStatus'];
export type PromptAnswer = components['schemas']['PromptAnswer'];
export type Quarantined = components['schemas']['Quarantined'];
export type Question = components['schemas']['Question'];
export type QuestionChange = components['schemas']['QuestionChange'];
export type QuestionItem = components['schemas']['QuestionItem'];
export type Questions = components['schemas']['Questions'];
export type RegisteredEntry = components['schemas']['RegisteredEntry'];
export type Reload = components['schemas']['Reload'];
export type Roles = components['schemas']['Roles'];
export type Session = components['schemas']['Session'];
export type SessionCounts = components['schemas']['SessionCounts'];
export type SessionEvent = components['schemas']['SessionEvent'];
export type SessionEventType = components['schemas']['SessionEventType'];
export type SessionHistory = components['schemas']['SessionHistory'];
export type SessionParent = components['schemas']['SessionParent'];
export type SessionState = components['schemas']['SessionState'];
export type Sessions = components['schemas']['Sessions'];
export type SpanCounts = components['schemas']['SpanCounts'];
export type Stall = components['schemas']['Stall'];
export type StatePatchEvent = components['schemas']['StatePatchEvent'];
export type Status = components['schemas']['Status'];
export type StreamNotice = components['schemas']['StreamNotice'];
export type Stuck = components['schemas']['Stuck'];
export type Tools = components['schemas']['Tools'];
export type Tracer = components['schemas']['Tracer'];
export type UiEvent = components['schemas']['UiEvent'];
export type WholeAsset = components['schemas']['WholeAsset'];
export type WholeSession = components['schemas']['WholeSession'];
export type WireEvent = components['schemas']['WireEvent'];
export type RouteError = components['schemas']['RouteError'];
export type RpcError = components['schemas']['RpcError'];
export type AmplifierEvent = components['schemas']['AmplifierEvent'];
export type BaseDescriptor = components['schemas']['BaseDescriptor'];
export type ToolInput = components['schemas']['ToolInput'];
export type Plan = components['schemas']['Plan'];
export type Configuration = components['schemas']['Configuration'];
export type Descriptor = components['schemas']['Descriptor'];
export type Policy = components['schemas']['Policy'];
export type TranscriptHeader = components['schemas']['TranscriptHeader'];
export type TranscriptEntry = components['schemas']['TranscriptEntry'];
export type TranscriptCount = components['schemas']['TranscriptCount'];
export type TranscriptLine = components['schemas']['TranscriptLine'];
export type TranscriptRequest = components['schemas']['TranscriptRequest'];
export type TranscriptOutcome = components['schemas']['TranscriptOutcome'];
export type TranscriptAnswer = components['schemas']['TranscriptAnswer'];
export type TranscriptEvent = components['schemas']['TranscriptEvent'];
export type Transcript = components['schemas']['Transcript'];
export type Transport = components['schemas']['Transport'];
export type StdioTransport = components['schemas']['StdioTransport'];
export type HttpTransport = components['schemas']['HttpTransport'];
export type Response400 = components['responses']['400'];
export type Response401 = components['responses']['401'];
export type Response403 = components['responses']['403'];
export type Response404 = components['responses']['404'];
export type ResponseDefault = components['responses']['default'];
export type $defs = Record<string, never>;
export interface operations {
    "get-": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-page-file": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                file: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-page-views-file": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                file: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-login": {
        parameters: {
            query?: {
                code?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            303: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description There is no token, or not a valid one */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
        };
    };
    "post-login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    token?: string;
                };
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description There is no token, or not a valid one */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
        };
    };
    "post-logout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description There is no token, or not a valid one */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                    "text/html": string;
                };
            };
        };
    };
    "get-api-v1-openapi-json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                    "application/openmetrics-text": string;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-mcp": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description There is no token, or not a valid one */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
        };
    };
    "post-mcp": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description There is no token, or not a valid one */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
        };
    };
    "delete-mcp": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description There is no token, or not a valid one */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
        };
    };
    "get-mcp-view": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                view: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description There is no token, or not a valid one */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
        };
    };
    "post-mcp-view": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                view: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description There is no token, or not a valid one */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
        };
    };
    "delete-mcp-view": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                view: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description There is no token, or not a valid one */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"] | components["schemas"]["RpcError"];
                };
            };
        };
    };
    "get-api-v1-health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-info": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Info"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-status": {
        parameters: {
            query?: {
                histogram?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Status"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-modules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Modules"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-modules-module": {
        parameters: {
            query?: {
                histogram?: boolean;
            };
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModuleStatus"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-modules-module-invoke": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    op: string;
                    /** @default {} */
                    args?: Record<string, unknown>;
                    session_id?: string;
                    timeout_s?: number;
                };
            };
        };
        responses: {
            /** @description It is done; the items of a stream are of the schema WireEvent, the last one the InvokeResponse */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InvokeSuccess"] | components["schemas"]["ModuleSuccess"];
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            /** @description The request is not valid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InvokeFailure"] | components["schemas"]["ModuleFailure"] | components["schemas"]["RouteError"];
                };
            };
            401: components["responses"]["401"];
            /** @description The caller may not do that */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InvokeFailure"] | components["schemas"]["ModuleFailure"] | components["schemas"]["RouteError"];
                };
            };
            /** @description Nothing has that name */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InvokeFailure"] | components["schemas"]["ModuleFailure"] | components["schemas"]["RouteError"];
                };
            };
            /** @description It failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["InvokeFailure"] | components["schemas"]["ModuleFailure"] | components["schemas"]["RouteError"];
                };
            };
        };
    };
    "post-api-v1-modules-module-start": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModuleStatus"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-modules-module-stop": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModuleStatus"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-modules-module-restart": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModuleStatus"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-modules-module-logs": {
        parameters: {
            query?: {
                lines?: number;
            };
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done; the items of a stream are of the schema LogItem */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LogLines"];
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-tools": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tools"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-tools-module": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModuleStatus"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-tools-module-execute": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @default {} */
                    arguments?: Record<string, unknown>;
                    /** @description may be left out if the tool has one only */
                    op?: string;
                    session_id?: string;
                    timeout_s?: number;
                };
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ExecutedTool"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-agents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Agents"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-agents-module": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModuleStatus"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-reload": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /**
                     * @description only say what a reload would do
                     * @default false
                     */
                    dry_run?: boolean;
                };
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reload"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-sessions": {
        parameters: {
            query?: {
                limit?: number;
                after?: string;
                ended?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sessions"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description an id of your own; one is made up if left out */
                    session_id?: string;
                    /** @description what people call it */
                    title?: string;
                    /** @description the folder that it is about, an absolute path */
                    cwd?: string;
                    /** @description Plan Schema v1: {"goal": a string, "inputs": an object} */
                    plan?: unknown;
                    /**
                     * @description what it begins with
                     * @default {}
                     */
                    state?: Record<string, unknown>;
                    /** @description what serves its prompts: an agent, or an orchestrator and what it works with */
                    roles?: {
                        /** @description a module's name */
                        agent?: string;
                        /** @description a module's name */
                        orchestrator?: string;
                        /** @description a module's name */
                        context?: string;
                        /** @description a module's name */
                        provider?: string;
                        tools?: string[];
                    };
                    /** @description as `agent` of the roles */
                    agent_name?: string;
                };
            };
        };
        responses: {
            /** @description It is done */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-sessions-session_id": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WholeSession"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "delete-api-v1-sessions-session_id": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EndedSession"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-sessions-session_id-fork": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description an id of your own; one is made up if left out */
                    new_id?: string;
                    /** @description what people call it */
                    title?: string;
                    /** @description what serves its prompts: an agent, or an orchestrator and what it works with */
                    roles?: {
                        /** @description a module's name */
                        agent?: string;
                        /** @description a module's name */
                        orchestrator?: string;
                        /** @description a module's name */
                        context?: string;
                        /** @description a module's name */
                        provider?: string;
                        tools?: string[];
                    };
                };
            };
        };
        responses: {
            /** @description It is done */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Session"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-sessions-session_id-state": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionState"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "patch-api-v1-sessions-session_id-state": {
        parameters: {
            query?: never;
            header?: {
                "If-Match"?: string;
            };
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/merge-patch+json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PatchedState"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-sessions-session_id-history": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionHistory"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-sessions-session_id-prompt": {
        parameters: {
            query?: {
                vocabulary?: "documented" | "deployed";
            };
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description what the session is asked */
                    content: string;
                    /**
                     * @default normal
                     * @enum {unknown}
                     */
                    priority?: "low" | "normal" | "high" | "urgent";
                    /**
                     * @description what to do if the session is busy
                     * @default queue
                     * @enum {unknown}
                     */
                    conflict_strategy?: "queue" | "reject";
                    timeout_s?: number;
                    /** @description whether the answer is to be a stream */
                    stream?: boolean;
                };
            };
        };
        responses: {
            /** @description It is done; the items of a stream are of the schema SessionEvent */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PromptAnswer"];
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-sessions-session_id-prompt-stream": {
        parameters: {
            query?: {
                vocabulary?: "documented" | "deployed";
            };
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description what the session is asked */
                    content: string;
                    /**
                     * @default normal
                     * @enum {unknown}
                     */
                    priority?: "low" | "normal" | "high" | "urgent";
                    /**
                     * @description what to do if the session is busy
                     * @default queue
                     * @enum {unknown}
                     */
                    conflict_strategy?: "queue" | "reject";
                    timeout_s?: number;
                    /** @description whether the answer is to be a stream */
                    stream?: boolean;
                };
            };
        };
        responses: {
            /** @description It is done; the items of a stream are of the schema SessionEvent */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PromptAnswer"];
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-sessions-session_id-events": {
        parameters: {
            query?: {
                vocabulary?: "documented" | "deployed";
            };
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done; the items of a stream are of the schema SessionEvent */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-sessions-session_id-cancel": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                session_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /**
                     * @description the prompts too that wait for the one that runs
                     * @default true
                     */
                    queued?: boolean;
                    /**
                     * @description whatever else is in flight for the session, too
                     * @default false
                     */
                    force?: boolean;
                };
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Cancelled"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-assets": {
        parameters: {
            query?: {
                session_id?: string;
                module?: string;
                request_id?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Assets"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-assets-asset": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                asset: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WholeAsset"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-assets-asset-content": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                asset: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            /** @description A part of it */
            206: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": unknown;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-events": {
        parameters: {
            query?: {
                since?: number;
                last?: number;
                limit?: number;
                event?: string;
                module?: string;
                session_id?: string;
                journal?: string;
            };
            header?: {
                "Last-Event-ID"?: number;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done; the items of a stream are of the schema JournalItem */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Journal"];
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-api-v1-approvals": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It is done; the items of a stream are of the schema QuestionItem */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Questions"];
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-api-v1-approvals-id": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /**
                     * @description allow, deny, or one of the question's options
                     * @default allow
                     */
                    answer?: string;
                    /** @description what the question's form is filled in with */
                    content?: Record<string, unknown>;
                };
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Answered"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "get-ws": {
        parameters: {
            query?: {
                session_id?: string;
                vocabulary?: "documented" | "deployed";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description It goes on with WebSocket */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            /** @description It is not a WebSocket handshake */
            426: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteError"];
                };
            };
            default: components["responses"]["default"];
        };
    };
    "post-modules-module-health": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HealthReply"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-modules-module-describe": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description It is done */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DescribeReply"];
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
    "post-modules-module-invoke": {
        parameters: {
            query?: never;
            header?: never;
            path: {
                module: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    op: string;
                    /** @default {} */
                    args?: Record<string, unknown>;
                    session_id?: string;
                    timeout_s?: number;
                };
            };
        };
        responses: {
            /** @description It is done; the items of a stream are of the schema WireEvent, the last one the ModuleReply */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModuleReply"];
                    "text/event-stream": string;
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["400"];
            401: components["responses"]["401"];
            403: components["responses"]["403"];
            404: components["responses"]["404"];
            default: components["responses"]["default"];
        };
    };
}
