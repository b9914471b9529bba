"""A tool of Spec 001 that loads some of the standard library, as tools do, and answers.

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
answer = {"n": request["input"]["n"], "loaded": len(LOADED)}
print(json.dumps({"version": "0", "type": "done", "ok": True, "result": answer}), flush=True)
if sys.argv[1:] == ["quick"]:
    os._exit(0)
