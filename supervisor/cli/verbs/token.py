"""`stdiod token`: make, list and revoke tokens for HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from supervisor.cli.client import given_args
from supervisor.cli.options import (
    TEXT,
    TOKEN,
    Subverbs,
    example,
    with_json,
    with_scopes,
    with_socket,
)
from supervisor.cli.quantities import utc_second
from supervisor.cli.results import own_result, print_json, show_result
from supervisor.cli.terminal import one_line

DAY_S = 86400.0


@click.group(cls=Subverbs, epilog=example("token new ada --scope read --expires 30"))
def token() -> None:
    """Make, list and revoke tokens, with which clients use HTTP."""


@token.command(
    epilog=example("token new ada --scope read --scope invoke --modules 'dice*' --expires 30")
)
@click.argument("name", type=TEXT)
@with_scopes("What it allows; repeat it for more.  [default: read and invoke]")
@click.option(
    "--expires",
    "days",
    type=click.FloatRange(0, 36_500, min_open=True),
    metavar="DAYS",
    help="For how long it is valid.  [default: until it is revoked]",
)
@click.option(
    "--rate",
    "rate_per_s",
    type=click.FloatRange(0.001, 1e6),
    metavar="N",
    help="How many requests a second it allows.  [default: any number]",
)
@with_json
@with_socket
def new(
    *,
    name: str,
    scopes: tuple[str, ...],
    modules: tuple[str, ...],
    days: float | None,
    rate_per_s: float | None,
    as_json: bool,
    socket: Path,
) -> None:
    """Make a token for NAME and print it. It is shown only once: the daemon keeps a digest."""
    args = given_args(
        name=name,
        scopes=list(scopes) or None,
        modules=list(modules) or None,
        expires_s=None if days is None else days * DAY_S,
        rate_per_s=rate_per_s,
    )
    found = own_result(socket, "token.new", args, as_json=as_json)
    if as_json:
        print_json(found)
        return
    click.echo(found["token"])
    click.echo(_words(found), err=True)


@token.command("list", epilog=example("token list"))
@with_json
@with_socket
def list_(*, as_json: bool, socket: Path) -> None:
    """List the tokens, the oldest first. Their secrets are not stored."""
    found = own_result(socket, "token.list", {}, as_json=as_json)
    if as_json:
        print_json(found)
        return
    for one in found["tokens"]:
        click.echo(_words(one))
    if not found["tokens"]:
        click.echo("no tokens")


@token.command(epilog=example("token revoke ada"))
@click.argument("name", type=TOKEN)
@with_json
@with_socket
def revoke(*, name: str, as_json: bool, socket: Path) -> None:
    """Revoke the token of NAME, and close the connections that use it."""
    found = own_result(socket, "token.revoke", {"name": name}, as_json=as_json)
    show_result(found, f"the token {one_line(name)} is revoked", as_json=as_json)


def _words(one: dict[str, Any]) -> str:
    expires = one["expires"]
    until = "until it is revoked"
    if expires is not None:
        until = f"until {utc_second(expires)}"
    scopes, modules = ", ".join(one["scopes"]) or "nothing", ", ".join(one["modules"]) or "none"
    rate = f", {one['rate_per_s']:g} requests a second" if one["rate_per_s"] else ""
    whose = f"the page of {one['page_of']}, " if one.get("page_of") else ""
    return one_line(f"{one['name']}: {whose}may {scopes}, modules {modules}{rate}, {until}")
