// stream.js COUNT PROGRAM: read a stream of events with Node's readline and JSON.parse.
// Prints the seconds it took from the request to the `done` event, and those of its own CPU, after a
// stream of a quarter as many.
"use strict";
const { spawn } = require("node:child_process");
const readline = require("node:readline");

const count = Number(process.argv[2]);
const child = spawn(process.argv[3], process.argv.slice(4), { stdio: ["pipe", "pipe", "inherit"] });
let begin, before, asked, seen;

function listen(events) {
  asked = events;
  seen = 0;
  begin = process.hrtime.bigint();
  before = process.cpuUsage();
  const input = { op: "stream", args: { n: events } };
  const request = { requestId: "r1", tool: "native", operation: "invoke", input };
  child.stdin.write(JSON.stringify(request) + "\n");
}

let isWarm = false;
readline.createInterface({ input: child.stdout, crlfDelay: Infinity }).on("line", (line) => {
  if (JSON.parse(line).type !== "done") return void seen++;
  if (seen !== asked) throw new Error(`${seen} events of ${asked}`);
  if (!isWarm) {
    isWarm = true;
    return listen(count);
  }
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  const { user, system } = process.cpuUsage(before);
  child.stdin.end();
  child.on("exit", () => console.log(seconds.toFixed(9), ((user + system) / 1e6).toFixed(9)));
});
child.on("spawn", () => listen(Math.floor(count / 4)));
