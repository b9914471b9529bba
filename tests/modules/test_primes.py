"""The sample primes, driven alone."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.modules.samples import MODULES, PATIENCE_S, Running, perform


def test_primes_factors_hard_numbers_and_refuses_what_is_none(tmp_path: Path) -> None:
    with Running("primes", tmp_path) as primes:
        for factors in (
            [],
            [2] * 63,
            [4294967279, 4294967291],
            [4294967291, 4294967291],
            [2642239, 2642245 - 4, 2642245 - 4],
            [18446744073709551557],
        ):
            product = 1
            for factor in factors:
                product *= factor
            result = primes.invoke("factor", {"n": product})["result"]
            again = 1
            for factor in result["factors"]:
                again *= factor
                verdict = primes.invoke("is_prime", {"n": factor})["result"]
                assert verdict == {"n": factor, "prime": True}
            assert again == product
            assert len(result["factors"]) >= len(factors)
        for n in (0, 1, 561, 3215031751, 3825123056546413051):  # pseudoprimes to several bases
            assert primes.invoke("is_prime", {"n": n})["result"]["prime"] is False
        for bad in (-1, 2**64, 1.5, "7", None, [7]):
            assert primes.invoke("factor", {"n": bad})["error"]["code"] == "bad_request"
        assert primes.invoke("factor", {"m": {"n": 7}})["error"]["code"] == "bad_request"


def test_primes_echoes_its_arguments_byte_for_byte(tmp_path: Path) -> None:
    raw = rb'{ "b" : [1.0e+2, {"op":"factor"}], "a":"\u00e9\ud83c\"}{", "n" :null , "":{} }'
    with Running("primes", tmp_path) as primes:
        head = rb'{"x":"{\"requestId\":\"no\"}","request\u0049d":"y\"\u0065s",'
        call = rb'"operation":"inv\u006fke","input":{"args":' + raw + rb',"op":"echo"}}'
        primes.write(head + call + b"\n")
        assert primes.process.stdout is not None
        line = primes.process.stdout.readline()
        assert line == rb'{"requestId":"y\"\u0065s","ok":true,"result":' + raw + b"}\n"


NO_JSON = (
    b'{"operation":"health",}',
    b'{"operation":"health"} {}',
    b'{"operation":"heal\nth"}',
    b'{"operation":"health","x":01}',
    b'{"operation":"health","x":[1,]}',
    b'{"operation":"health","x":"\\x"}',
    b'{"operation":"health","x":tru}',
    b'{"operation":"health","x":"\\u12"}',
    b'{"operation":"health","x":-}',
    b'{"operation":"health","x":1.}',
    b'{"operation":"health"}\0',
    b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"operation"',
    b"{",
)


def test_primes_takes_nothing_for_json_that_is_not(tmp_path: Path) -> None:
    with Running("primes", tmp_path) as primes:  # it is compiled whenever it starts
        for line in NO_JSON:
            primes.write(line + b"\n")
            assert primes.ask("health") == {"requestId": "r-1", "status": "ok"}, line
        status, rest, stderr = primes.finish()
    assert (status, rest) == (0, [])
    assert stderr.count("malformed") == sum(line.count(b"\n") + 1 for line in NO_JSON)


def test_primes_leaves_no_file_behind_even_while_it_runs(tmp_path: Path) -> None:
    with Running("primes", tmp_path) as primes:
        assert primes.ask("health")["status"] == "ok"
        assert list(tmp_path.iterdir()) == []


def test_primes_without_a_compiler_says_so_and_exits_127(tmp_path: Path) -> None:
    status, lines, stderr = perform("primes", tmp_path, b"", CC="no-such-compiler -v")
    assert (status, lines) == (127, [])
    assert 'no C compiler "no-such-compiler"' in stderr
    assert list(tmp_path.iterdir()) == []


def test_primes_is_free_of_compiler_warnings(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    strict = ["-Wall", "-Wextra", "-Werror", "-O2", "-o", str(tmp_path / "primes")]
    done = subprocess.run(
        [compiler, *strict, str(MODULES / "primes" / "primes.c")],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
