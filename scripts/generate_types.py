"""Write `schemas/stdiod.d.ts`, as `make typescript` does: types of all that HTTP and files hold.

The types are made by openapi-typescript (npm), which `make test-typescript` installs. It is well
kept, knows OpenAPI 3.1 with JSON Schema 2020-12, and its `paths` are what typed clients such as
openapi-fetch take; a generator of our own would be a few hundred lines to keep in step with
TypeScript. It needs Node, and only here: who uses the types needs neither, since the file is kept.

What is ours is the document that it is given: that of the daemon, which has all answers, and the
files that people write, which no route takes (`FILES`).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import schemas
from protocol.openapi_schemas import HERE, cases
from scripts.foreign import TYPESCRIPT
from supervisor.edge.http import openapi
from supervisor.edge.http.routes import ROUTES
from supervisor.kernel.operations import inputs

OUTPUT = Path(__file__).parents[1] / "schemas" / "stdiod.d.ts"

WITHIN_S = 250.0
FILES: Mapping[str, str] = {
    "event.v1": "AmplifierEvent",
    "module-descriptor.v1": "BaseDescriptor",
    "narratoria-input.v0": "ToolInput",
    "plan.v1": "Plan",
    "stdiod-config.v1": "Configuration",
    "stdiod-descriptor.v1": "Descriptor",
    "stdiod-policy.v1": "Policy",
    "transcript.v1": "Transcript",
}
"""The documents of `schemas/` that no route answers with, by the names of their types."""

HEADER = """\
// TypeScript types of stdiod: what HTTP takes and answers (`paths`), and what stands in files.
// Made by `make typescript` (scripts/generate_types.py) with {generator}; do not edit.
// The document it was made of: sha256 {digest}

"""

OPTIONS = (
    "--default-non-nullable=false",  # what has a default may be left out
    "--empty-objects-unknown",
    "--root-types",
    "--root-types-no-schema-prefix",
    "--root-types-keep-casing",
)

TRANSPORTS = {"stdio": "StdioTransport", "http": "HttpTransport"}

META_SCHEMA = "https://json-schema.org/draft/2020-12/schema"

LITERAL = ("default", "enum", "const")
UNTYPED = ("if", "then", "else", "not", "dependentSchemas", "dependentRequired", "prefixItems")
"""What no type can say; left in, some would become `unknown`."""


def of_files() -> dict[str, Any]:
    """Return the schemas of the files that people write."""
    found: dict[str, Any] = {}
    for name, title in FILES.items():
        file = schemas.load(name)
        for one, schema in file.get("$defs", {}).items():
            found[title + one.capitalize()] = structure(schema, title)
        found[title] = structure(file, title)
    transport = schemas.load("stdiod-descriptor.v1")["properties"]["transport"]
    by_type = [one for one in transport["allOf"] if "type" in one["if"]["properties"]]
    structured = {**structure(transport, "Descriptor"), "allOf": by_type}
    found |= cases(structured, "Transport", TRANSPORTS)
    found["Descriptor"]["properties"]["transport"] = {"$ref": f"{HERE}Transport"}
    return found


def structure(schema: Any, title: str) -> Any:
    """Return what of a schema a type can say; references are to definitions of `title`.

    An object whose `if` asks which kind of it this is becomes one of the two.
    """
    if isinstance(schema, list):
        return [structure(one, title) for one in schema]
    if not isinstance(schema, dict):
        return schema
    refers = schema.get("$ref")
    if refers == META_SCHEMA:
        return {"description": "a JSON Schema", "type": ["object", "boolean"]}
    if refers is not None:
        return {"$ref": f"{HERE}{title}{refers.rpartition('/')[2].capitalize()}"}
    if {"then", "else"} <= schema.keys() and "properties" not in schema:
        said = {key: schema[key] for key in ("title", "description") if key in schema}
        return said | {"oneOf": structure([schema["then"], schema["else"]], title)}
    return {
        key: one if key in LITERAL else structure(one, title)
        for key, one in schema.items()
        if key not in UNTYPED and not key.startswith("$") and not _is_rule(key, one)
    }


def _is_rule(key: str, value: Any) -> bool:
    """Tell whether it only says which fields go together."""
    return key in ("allOf", "anyOf", "oneOf") and not any(
        one.keys() & {"$ref", "type", "const", "properties", "oneOf"} for one in value
    )


def typed(schema: Any) -> Any:
    """Return a schema in which each list of words says that these are strings."""
    if isinstance(schema, list):
        return [typed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    words = schema.get("enum")
    of_strings = isinstance(words, list) and all(isinstance(one, str) for one in words)
    return ({"type": "string"} if of_strings else {}) | {
        key: typed(one) for key, one in schema.items()
    }


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return openapi.document(ROUTES, inputs())


def whole(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with the files' schemas beside its own."""
    parts: dict[str, Any] = described["components"]
    # Which release this is makes no difference to the types.
    info = {"title": "stdiod", "version": ""}
    components = {**parts, "schemas": typed({**parts["schemas"], **of_files()})}
    return {**described, "info": info, "components": components}


def header(document: Mapping[str, Any]) -> str:
    """Return how the file begins; a digest of the document shows whether it is of this one."""
    text = json.dumps(document, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return HEADER.format(generator=TYPESCRIPT.packages[0], digest=digest)


def generated(described: Mapping[str, Any]) -> str:
    document = whole(described)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "openapi.json"
        source.write_text(json.dumps(document), encoding="utf-8")
        command = [str(TYPESCRIPT.bin / "openapi-typescript"), str(source), *OPTIONS]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=WITHIN_S
        )
    if done.returncode:
        sys.exit(f"openapi-typescript ended with {done.returncode}:\n{done.stderr.decode()}")
    return header(document) + done.stdout.decode().partition("*/\n")[2].lstrip()


def main() -> None:
    if why := TYPESCRIPT.install():
        sys.exit(f"the types cannot be made: {why}")
    OUTPUT.write_text(generated(document()), encoding="utf-8")


if __name__ == "__main__":
    main()
