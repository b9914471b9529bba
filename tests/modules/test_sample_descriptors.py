"""What is said of every sample: its files, its descriptor, its examples."""

import re

import jsonschema
import pytest

from tests.modules.samples import DESCRIPTORS, MODULES


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_a_sample_is_a_descriptor_and_at_most_one_source_file(name: str) -> None:
    files = sorted(path.name for path in (MODULES / name).iterdir())
    transport = DESCRIPTORS[name]["transport"]
    sources = [] if transport["protocol"] == "exec" else [transport["command"][-1]]
    assert files == sorted(["module.json", *sources])


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_a_descriptor_names_its_folder_and_has_valid_schemas(name: str) -> None:
    descriptor = DESCRIPTORS[name]
    assert descriptor["name"] == name
    assert {"kind", "version", "description", "capabilities"} <= descriptor.keys()
    # An MCP server says itself what its tools take.
    is_mcp = descriptor["transport"]["protocol"] == "mcp"
    assert is_mcp == ("inputs" not in descriptor)
    schemas = [one for field in ("inputs", "outputs") for one in descriptor.get(field, {}).values()]
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)


def test_the_readme_has_an_example_for_every_sample() -> None:
    # They are played in tests/system/test_samples.py.
    text = (MODULES / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    stdiod invoke (\w+)", text, re.MULTILINE)
    assert set(shown) == DESCRIPTORS.keys()
