from __future__ import annotations

import pytest

from protocol.problem import quoted, without_password

SHOWN = {
    "http://u:p@h/x": "http://***@h/x",
    "https://TOKEN@h": "https://***@h",
    "http://u:p@ss@h:1": "http://***@h:1",
    "postgres://u:p%40@h/db and redis://:p@[::1]:2": "postgres://***@h/db and redis://***@[::1]:2",
    "A='http://u:p@h/' http://v:q@i": "A='http://***@h/' http://***@i",
    "/opt/http:/u:p@h": "/opt/http:/***@h",
    "curl -x u:p@proxy:3128": "curl -x ***@proxy:3128",
    "--proxy=u:p@[::1]:80": "--proxy=***@[::1]:80",
}
LEFT = (
    *("", "ann@example.org", "git@github.com:a/b", "http://h/a@b", "http://h?a=b@c"),
    *("image:tag@sha256:0123", "npx pkg@1.2", "at 10:20 a@b:1"),
)


@pytest.mark.parametrize(("text", "shown"), [*SHOWN.items(), *zip(LEFT, LEFT, strict=True)])
def test_of_an_address_user_and_password_are_not_shown(text: str, shown: str) -> None:
    assert without_password(text) == shown


def test_a_value_that_is_cut_is_shown_without_its_password() -> None:
    assert quoted(f"http://ann:{'p' * 100}@host/") == '"http://***@host/"'
