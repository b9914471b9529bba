"""A module that asks its daemon over HTTP: `ask` has args `socket` and `requests`."""

from __future__ import annotations

import http.client
import json
import socket
import sys
from typing import Any


def asked(path: str, requests: list[list[Any]]) -> list[Any]:
    found = []
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.connect(path)
        client = http.client.HTTPConnection("localhost")
        client.sock = daemon
        for method, target, body in requests:
            data = None if body is None else json.dumps(body)
            client.request(method, target, data, {"Content-Type": "application/json"})
            with client.getresponse() as answer:
                found.append([answer.status, json.loads(answer.read())])
    return found


for line in sys.stdin:
    request = json.loads(line)
    result: Any = {"status": "ok"}
    if request["operation"] == "describe":
        result = {"name": "asker", "kind": "tool", "version": "1", "inputs": {"ask": {}}}
    elif request["operation"] == "invoke":
        args = request["input"]["args"]
        result = {"ok": True, "result": asked(args["socket"], args["requests"])}
    sys.stdout.write(json.dumps({"requestId": request["requestId"], **result}) + "\n")
    sys.stdout.flush()
