// host.js MODE COUNT WINDOW PROGRAM...: do the work of a row as a careful Node host does, without stdiod.
//
// ask     ask a persistent module, WINDOW requests open at once: requests are built and answers parsed as
//         JSON, each answer finds its request by its id, and all requests of a tick leave in one write
// stream  read a stream of events with Node's readline and JSON.parse
// spawn   run a tool with child_process.spawn, one run after the other: a request written, both outputs
//         read to their end
//
// Prints the seconds that it took, and those of its own CPU, after a quarter as many to warm up.
"use strict";
const { spawn } = require("node:child_process");
const readline = require("node:readline");

const [mode, asked, window, program, ...words] = process.argv.slice(2);

function started() {
  return spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
}

function ask() {
  const child = started(), open = new Map();
  let sent = 0, answered = 0, count = 0, outgoing = "", rest = "", done;

  function flush() {
    child.stdin.write(outgoing);
    outgoing = "";
  }

  function submit() {
    if (sent === count) return;
    const requestId = `r${++sent}`;
    open.set(requestId, settle);
    if (!outgoing) queueMicrotask(flush);
    const input = { op: "echo", args: { n: 1 } };
    outgoing += JSON.stringify({ requestId, tool: "primes", operation: "invoke", input }) + "\n";
  }

  function settle(answer) {
    if (!answer.ok) throw new Error(JSON.stringify(answer));
    if (++answered === count) done();
    else submit();
  }

  child.stdout.setEncoding("utf8").on("data", (chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const answer = JSON.parse(line);
      const waiting = open.get(answer.requestId);
      open.delete(answer.requestId);
      waiting(answer);
    }
  });
  return [(times) => new Promise((resolve) => {
    [sent, answered, count, done] = [0, 0, times, resolve];
    for (let i = 0; i < Number(window); i++) submit();
    if (times === 0) resolve();
  }), () => child.stdin.end()];
}

function stream() {
  const child = started();
  let seen = 0, count = 0, done;
  readline.createInterface({ input: child.stdout, crlfDelay: Infinity }).on("line", (line) => {
    if (JSON.parse(line).type !== "done") return void seen++;
    if (seen !== count) throw new Error(`${seen} events of ${count}`);
    done();
  });
  return [(times) => new Promise((resolve) => {
    [seen, count, done] = [0, times, resolve];
    const input = { op: "stream", args: { n: times } };
    child.stdin.write(JSON.stringify({ requestId: "r1", tool: "native", operation: "invoke", input }) + "\n");
  }), () => child.stdin.end()];
}

function run() {
  const request = JSON.stringify({ requestId: "r1", tool: "done", operation: "run", input: {} }) + "\n";

  function once(left, done) {
    if (left === 0) return done();
    const child = spawn(program, words);
    let said = "";
    child.stdout.setEncoding("utf8").on("data", (chunk) => { said += chunk; });
    child.stderr.resume();
    child.stdin.on("error", () => {}); // it may end without having read
    child.stdin.end(request);
    child.on("close", (code) => {
      if (code !== 0 || !JSON.parse(said).ok) throw new Error("the tool failed");
      once(left - 1, done);
    });
  }
  return [(times) => new Promise((resolve) => once(times, resolve)), () => {}];
}

async function main() {
  const [work, end] = { ask, stream, spawn: run }[mode]();
  await work(Math.floor(asked / 4));
  const begin = process.hrtime.bigint(), before = process.cpuUsage();
  await work(Number(asked));
  const seconds = Number(process.hrtime.bigint() - begin) / 1e9;
  const { user, system } = process.cpuUsage(before);
  console.log(seconds.toFixed(9), ((user + system) / 1e6).toFixed(9));
  end();
}

main();
