// What the types refuse, and what they know: compiled, never run. A line after `@ts-expect-error`
// that is no error is an error itself.

import createClient from "openapi-fetch";
import type {
  Configuration,
  Descriptor,
  InvokeResponse,
  ModuleState,
  RegisteredEntry,
  Status,
  WireEvent,
  paths,
} from "./stdiod";

const stdiod = createClient<paths, "application/json">({ baseUrl: "http://127.0.0.1" });

export async function requests(): Promise<void> {
  // @ts-expect-error there is no such path
  await stdiod.GET("/api/v1/modulez");
  // @ts-expect-error it has no such method
  await stdiod.DELETE("/api/v1/status");
  // @ts-expect-error the module is left out
  await stdiod.POST("/api/v1/modules/{module}/invoke", { body: { op: "roll" } });
  const path = { module: "dice" };
  // @ts-expect-error the op is left out
  await stdiod.POST("/api/v1/modules/{module}/invoke", { params: { path }, body: {} });
  const misspelt = { op: "roll", tiemout_s: 3 } as const;
  // @ts-expect-error a field is misspelt
  await stdiod.POST("/api/v1/modules/{module}/invoke", { params: { path }, body: { ...misspelt, timeout_s: "3" } });
  // @ts-expect-error a limit is a number
  await stdiod.GET("/api/v1/events", { params: { query: { limit: "3" } } });

  const { data, error } = await stdiod.GET("/api/v1/sessions/{session_id}", {
    params: { path: { session_id: "trip" } },
  });
  // @ts-expect-error it may have failed
  data.revision;
  if (error !== undefined) {
    // @ts-expect-error it is one of the codes
    const code: "NOT_THERE" = error.code;
    return;
  }
  const revision: number = data.revision;
  // @ts-expect-error a state has anything in it
  const room: string = data.state["room"];
}

export function answers(response: InvokeResponse, status: Status): void {
  // @ts-expect-error only a failure has an error
  response.error.code;
  if (response.ok) {
    const none: undefined = response.error;
    // @ts-expect-error a result may be anything
    response.result.total;
  } else {
    const code: string = response.error.code;
  }
  for (const module of status.modules) {
    const state: ModuleState = module.state;
    // @ts-expect-error it may not have ended yet
    module.last_exit.reason;
    // @ts-expect-error there is no such state
    if (module.state === "running") return;
  }
}

export function events(event: WireEvent, entry: RegisteredEntry): string {
  // @ts-expect-error not each event has a message
  event.message;
  if (entry.event === "module:state") {
    const to: unknown = entry.data.to;
    const module: string = entry.module;
  }
  switch (event.type) {
    case "log":
      return event.message;
    case "state_patch":
      return JSON.stringify(event.patch);
    case "asset":
      return event.path;
    case "ui_event":
      return event.event;
    case "error":
      return event.errorCode;
    case "done":
      return event.summary ?? "";
  }
}

export const good: Descriptor = {
  name: "dice",
  kind: "tool",
  transport: { type: "stdio", command: ["python3", "dice.py"] },
  supervision: { timeouts: { invoke_s: 3 } },
};
// @ts-expect-error a service has a url
export const noUrl: Descriptor = { name: "far", kind: "tool", transport: { type: "http" } };
export const badKind: Descriptor = {
  name: "dice",
  // @ts-expect-error there is no such kind
  kind: "toll",
  transport: { type: "stdio", command: ["dice"] },
};
// @ts-expect-error a key is misspelt
export const badKey: Configuration = { sokcet: "/run/x.sock" };
