// stream.js COUNT PROGRAM...: read a stream of events with Node's readline and JSON.parse.
// Prints the seconds it took from the request to the `done` event.
"use strict";
const { spawn } = require("node:child_process");
const readline = require("node:readline");

const count = Number(process.argv[2]);
const child = spawn(process.argv[3], process.argv.slice(4), { stdio: ["pipe", "pipe", "inherit"] });
let begin, seen = 0;
readline.createInterface({ input: child.stdout, crlfDelay: Infinity }).on("line", (line) => {
  if (JSON.parse(line).type !== "done") return void seen++;
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  if (seen !== count) throw new Error(`${seen} events of ${count}`);
  child.stdin.end();
  child.on("exit", () => console.log(seconds.toFixed(9)));
});
child.on("spawn", () => {
  begin = process.hrtime.bigint();
  const input = { op: "stream", args: { n: count } };
  const request = { requestId: "r1", tool: "native", operation: "invoke", input };
  child.stdin.write(JSON.stringify(request) + "\n");
});
