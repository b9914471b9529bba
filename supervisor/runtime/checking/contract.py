"""What the daemon and the process that checks for it have agreed on.

Apart from the program, which imports jsonschema: the daemon does not.
"""

from __future__ import annotations

import os
import struct
import sys

CPU_S = 1.0

SCHEMA_CPU_S = 4.0
"""What it may take beside that to get a schema ready, when it is first met. To find out whether one
that a module described can be used takes 50 us for each byte of it."""

MEMORY_BYTES = 512 << 20
"""Address space; the interpreter with jsonschema takes 60 MB of it."""

SIZES = struct.Struct("!II?")
"""Before each check: the bytes of the schema, those of the args, and whether the schema is known to
be one that can be used."""


def command(lifeline: int) -> list[str]:
    """Return the command that runs it: isolated, with this process's own ways to import."""
    program = (
        "import sys; sys.path[:] = sys.argv[2:]; "
        "from supervisor.runtime.checking.program import main; main(int(sys.argv[1]))"
    )
    here = os.path.abspath(__file__)  # noqa: PTH100
    for _ in range(4):  # checking, runtime, supervisor, and the folder they are imported from
        here = os.path.dirname(here)  # noqa: PTH120
    paths = [here, *(path for path in sys.path if path)]
    return [sys.executable, "-I", "-S", "-c", program, str(lifeline), *paths]
