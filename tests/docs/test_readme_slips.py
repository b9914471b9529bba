"""The README's table of slips has the words that the program says of them."""

from __future__ import annotations

import json
import re

import pytest

from protocol.descriptor.model import Timeouts
from tests.docs.markdown import rows
from tests.docs.sandbox import Sandbox

SHORT_S = 0.3
TABLE = dict(rows("README.md", "Slip"))
SLIPS = {
    "a misspelt program": (["pyton3", "slip.py"], ""),
    "another name in `describe` than in the descriptor": (
        ["python3", "slip.py"],
        """\
import json
ME = {"name": "x", "version": "1", "kind": "tool", "capabilities": [], "inputs": {}, "outputs": {}}
input(), print('{"status":"ok"}', flush=True)
input(), print(json.dumps(ME), flush=True)
""",
    ),
    "it crashes": (["python3", "slip.py"], "import no_such_library\n"),
    "the answer stays in a buffer: `print` without `flush=True`": (
        ["python3", "slip.py"],
        'import sys\nfor _ in sys.stdin:\n    print(\'{"status":"ok"}\')\n',
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_told_in_the_words_of_the_readme(slip: str) -> None:
    command, program = SLIPS[slip]
    found = re.match(r"`([^`]+)`", TABLE[slip])
    assert found is not None
    words = found[1]
    timeouts = {}
    if "buffer" in slip:
        # Not to wait so long here.
        words = words.replace(f"{Timeouts().start_s:g} s", f"{SHORT_S:g} s")
        timeouts = {"start_s": SHORT_S}
        assert words != found[1]
    descriptor = {
        "name": "y",
        "kind": "tool",
        "transport": {"type": "stdio", "command": command},
        "capabilities": [],
        "supervision": {"timeouts": timeouts},
    }
    with Sandbox() as sandbox:
        sandbox.save("slip/module.json", json.dumps(descriptor))
        sandbox.save("slip/slip.py", program)
        printed = sandbox.run("stdiod invoke y go --descriptor slip/module.json")
    assert words in "\n".join(printed)
