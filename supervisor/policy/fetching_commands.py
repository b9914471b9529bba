"""Commands that download their program before they run it, as two: one that fetches, one that runs.

Each of these programs has a way to fetch something and run nothing of it (or only `true`, or a
Python that does nothing), and to run what is there without asking the network; but for pipx, which
keeps what it fetched for a while. A command of any other form, or with an option that is not known
here (such as one that wants the network each time), is left alone: a wrong guess would be a server
that never starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType

import msgspec


class Fetched(msgspec.Struct, frozen=True):
    """The command that fetches, the one that runs, and what is to be said of it."""

    prepare: list[str]
    command: list[str]
    remark: str = "is fetched before the first start, by transport.prepare, and by no start"


class _Known:
    """The options of a program: those without a value, those with one, and short names of these.

    Without a list of those with one, all others have one.
    """

    def __init__(
        self, flags: str, valued: str | None, short: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.flags = frozenset(flags.split())
        self.valued = None if valued is None else frozenset(valued.split())
        self.short = short

    def takes_value(self, name: str) -> bool | None:
        """Whether an option takes one; None if it is not known."""
        if name in self.flags:
            return False
        return True if self.valued is None or name in self.valued else None


class _Options(msgspec.Struct):
    """The options before the first word that is none, and what follows them."""

    given: list[tuple[str, str | None]]
    rest: list[str]

    def values(self, *names: str) -> list[str]:
        """Return what was given for an option, by whichever of its names."""
        return [value for name, value in self.given if name in names and value is not None]

    def without(self, *names: str) -> list[str]:
        """Return all others as words."""
        words: list[str] = []
        for name, value in self.given:
            if name not in names:
                words += [name] if value is None else [f"{name}={value}"]
        return words

    def has(self, *names: str) -> bool:
        """Whether one of these was given."""
        return any(name in names for name, _ in self.given)


_NPX = _Known(
    "-y --yes -q --quiet -s --silent --verbose --prefer-offline --prefer-online --offline "
    "--no-update-notifier --no-audit --no-fund",
    "--package --call --registry --cache --prefix --loglevel --userconfig --node-options",
    {"-p": "--package", "-c": "--call"},
)
_UVX = _Known(
    "--isolated --no-env-file --no-index --no-sources --no-build --no-binary --no-build-isolation "
    "--compile-bytecode --managed-python --no-managed-python --no-python-downloads -q --quiet -v "
    "--verbose --system-certs --native-tls --offline --no-progress --no-config --lfs",
    "--from --with --with-editable --with-requirements --constraints --overrides --python --index "
    "--default-index --index-url --extra-index-url --find-links --index-strategy --resolution "
    "--prerelease --keyring-provider --allow-insecure-host --exclude-newer --link-mode --cache-dir "
    "--color --directory --project --config-file --env-file --python-platform",
    {"-w": "--with", "-p": "--python", "-i": "--index-url", "-f": "--find-links"},
)
_PIPX = _Known(
    "-q --quiet -v --verbose --no-path-check --system-site-packages --skip-maintenance",
    "--spec --python --pip-args --index-url --with --python-args --fetch-python",
    {"-i": "--index-url"},
)
_RUN = _Known(
    "-d --detach --disable-content-trust --init -i --interactive --no-healthcheck "
    "--oom-kill-disable --privileged -P --publish-all -q --quiet --read-only --rm --sig-proxy -t "
    "--tty --env-host --http-proxy --no-hosts --no-hostname --passwd --read-only-tmpfs --replace "
    "--rmi --rootfs --tls-verify --unsetenv-all",
    None,
)


def fetched(command: Sequence[str]) -> Fetched | None:
    """Return a command as two, or None if it is none that is known to fetch, or how."""
    form = _FORMS.get(PurePath(command[0]).name)
    return None if form is None else form(command[0], list(command[1:]))


def _npx(program: str, words: list[str]) -> Fetched | None:
    found = _options(words, _NPX)
    if found is None:
        return None
    packages = found.values("--package")
    if not packages and not found.has("--call"):
        packages = found.rest[:1]
    if not packages or any(one.startswith((".", "/", "~", "file:")) for one in packages):
        return None
    others = found.without("--package", "--call", "-y", "--yes", "--offline")
    named = [f"--package={one}" for one in packages]
    return Fetched(
        [program, "--yes", *others, *named, "--", "true"], [program, "--offline", *words]
    )


def _uvx(program: str, words: list[str], *before: str) -> Fetched | None:
    found = _options(words, _UVX)
    if found is None or not found.rest or found.rest[0].partition("@")[0] == "python":
        return None
    source = (found.values("--from") or found.rest)[0]
    others = found.without("--from", "--offline")
    nothing = ["python", "-c", "pass"]
    return Fetched(
        [program, *before, *others, "--from", source, *nothing],
        [program, *before, "--offline", *words],
    )


def _uv(program: str, words: list[str]) -> Fetched | None:
    if words[:2] == ["tool", "run"]:
        return _uvx(program, words[2:], "tool", "run")
    return None


def _pipx(program: str, words: list[str]) -> Fetched | None:
    found = _options(words[1:], _PIPX)
    if words[:1] != ["run"] or found is None or not found.rest or found.has("--path"):
        return None
    source = (found.values("--spec") or found.rest)[0]
    others = found.without("--spec")
    return Fetched(
        [program, "run", *others, "--spec", source, "python", "-c", "pass"],
        [program, *words],
        "is fetched before the first start, by transport.prepare; pipx keeps it for 14 days, and a "
        "start after that fetches it again",
    )


def _run_image(program: str, words: list[str]) -> Fetched | None:
    found = _options(words[1:], _RUN, bundles=True)
    if words[:1] != ["run"] or found is None or not found.rest:
        return None
    image, *arguments = found.rest
    # An image that was built here is in no registry.
    unless_there = '"$0" image inspect "$1" >/dev/null 2>&1 || exec "$0" pull "$@"'
    platform = [f"--platform={one}" for one in found.values("--platform")]
    before = words[1 : len(words) - len(found.rest)]
    kept = found.without("--pull") if found.has("--pull") else before
    return Fetched(
        ["sh", "-c", unless_there, program, image, *platform],
        [program, "run", "--pull=never", *kept, image, *arguments],
    )


_FORMS: dict[str, Callable[[str, list[str]], Fetched | None]] = {
    "npx": _npx,
    "uvx": _uvx,
    "uv": _uv,
    "pipx": _pipx,
    "docker": _run_image,
    "podman": _run_image,
}


def _options(words: list[str], known: _Known, *, bundles: bool = False) -> _Options | None:
    """Tell options from what follows them; None if one is not known, and all may be otherwise.

    With `bundles`, `-it` is `-i -t`, and `-eA` is `-e A`.
    """
    found = _Options([], list(words))
    while found.rest and found.rest[0].startswith("-"):
        word = found.rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if bundles and not name.startswith("--") and len(name) > len("-i"):
            each = [f"-{one}" for one in name[1:]]
            are_flags = all(one in known.flags for one in each)
            found.given += [(one, None) for one in each] if are_flags else [(name[:2], word[2:])]
            continue
        name = known.short.get(name, name)
        takes_value = known.takes_value(name)
        if takes_value is None or (takes_value and not equals and not found.rest):
            return None
        if equals:
            found.given.append((name, value))
        else:
            found.given.append((name, found.rest.pop(0) if takes_value else None))
    return found
