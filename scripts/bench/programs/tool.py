"""A tool of Spec 001 in Python: it loads what such tools load, reads its request, says done.

With the word `quick` it ends without the interpreter's own shutdown, which undoes what was loaded.
"""

import argparse
import dataclasses
import json
import logging
import os
import pathlib
import sys

LOADED = (argparse, dataclasses, logging, pathlib)

request = json.loads(sys.stdin.readline())
done = {"version": "0", "type": "done", "requestId": request["requestId"], "ok": bool(LOADED)}
print(json.dumps(done), flush=True)
if sys.argv[1:] == ["quick"]:
    os._exit(0)
