"""`stdiod schema`: print the JSON Schema of a message or a file."""

from __future__ import annotations

import click

from supervisor.cli.options import TEXT, example, with_json
from supervisor.cli.results import print_json


@click.command(epilog=example("schema", "schema stdiod-descriptor > descriptor.schema.json"))
@click.argument("name", required=False, type=TEXT)
@click.option(
    "--typescript", is_flag=True, help="Print TypeScript types of all of them, and of HTTP."
)
@with_json
def schema(name: str | None, typescript: bool, as_json: bool) -> None:
    """Print the JSON Schema (2020-12) NAME, or list the names.

    A name can be given without its version: `plan` is the newest `plan`. An editor that knows the
    schema of descriptors, `stdiod-descriptor`, completes their fields and says what is wrong.
    """
    import schemas

    if typescript:
        if name is not None:
            raise click.UsageError("--typescript prints all types; leave NAME out")
        click.echo(schemas.typescript(), nl=False)
        return
    if name is None and as_json:
        titles = {one: schemas.load(one)["title"] for one in schemas.NAMES}
        print_json({"schemas": [{"name": one, "title": titles[one]} for one in titles]})
        return
    if name is None:
        for one in schemas.NAMES:
            click.echo(f"{one:<{max(map(len, schemas.NAMES))}}  {schemas.load(one)['title']}")
        return
    found = [one for one in schemas.NAMES if name in (one, one.rpartition(".")[0])]
    if not found:
        from protocol.problem import did_you_mean, quoted

        known = [one.rpartition(".")[0] for one in schemas.NAMES]
        hint = did_you_mean(name, known) or "; `stdiod schema` lists them"
        raise click.UsageError(f"there is no schema {quoted(name)}{hint}")
    click.echo(schemas.text(found[-1]), nl=False)
