// Use the TypeScript SDK as its documentation does: `client.mjs older|newer MODE`. Each line of
// stdin is a command and a list of steps: one connection, and one line of what came of each step.

import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const [line, mode] = process.argv.slice(1);
const CHANGED_MS = 20_000;
const packages = {
  older: ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/stdio.js"],
  newer: ["@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio"],
};
const [{ Client }, { StdioClientTransport }] = await Promise.all(
  packages[line].map((name) => import(name)),
);

async function play([[command, ...args], steps]) {
  let changed;
  const change = new Promise((resolve) => (changed = resolve));
  const onChanged = (error, tools) => changed(error ? raised(error) : tools.map((one) => one.name));
  const client = new Client(
    { name: "field", version: "1" },
    { listChanged: { tools: { onChanged } }, versionNegotiation: { mode } },
  );

  async function call(tool, input = {}, options = {}) {
    const params = { name: tool, arguments: input };
    const result = await (line === "older"
      ? client.callTool(params, undefined, options)
      : client.callTool(params, options));
    const { content, structuredContent, isError = false } = result;
    return { content, structuredContent, isError };
  }

  const verbs = {
    capabilities: () => client.getServerCapabilities(),
    tools: async () => (await client.listTools()).tools.map((one) => one.name),
    prompts: async () => (await client.listPrompts()).prompts.map((one) => one.name),
    resources: async () => (await client.listResources()).resources.map((one) => one.uri),
    read: async (uri) => (await client.readResource({ uri })).contents.map((one) => one.text),
    call,
    progress: async (tool, input) => {
      const progress = [];
      const onprogress = (one) => progress.push(one.progress);
      return { ...(await call(tool, input, { onprogress })), progress };
    },
    together: async (...calls) => {
      const order = [];
      const one = async ([tool, input]) => {
        const outcome = await tried(() => call(tool, input));
        order.push(tool);
        return outcome;
      };
      return { outcomes: await Promise.all(calls.map(one)), order };
    },
    changed: () =>
      Promise.race([
        change,
        pause(CHANGED_MS, undefined, { ref: false }).then(() => Promise.reject(Error("no change"))),
      ]),
  };

  try {
    await client.connect(new StdioClientTransport({ command, args }));
    const outcomes = [];
    for (const [verb, ...rest] of steps) outcomes.push(await tried(() => verbs[verb](...rest)));
    return outcomes;
  } finally {
    await client.close();
  }
}

const raised = (error) => ({ raised: `${error.name}: ${error.message}` });
const tried = async (step) => {
  try {
    return await step();
  } catch (error) {
    return raised(error);
  }
};

for await (const script of createInterface({ input: process.stdin }))
  console.log(JSON.stringify(await tried(() => play(JSON.parse(script)))));
