"""Validators for the schema documents, with references resolved among them alone."""

from __future__ import annotations

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

import schemas


def validator(name: str) -> Draft202012Validator:
    resources = [Resource.from_contents(schemas.load(each)) for each in schemas.NAMES]
    registry = resources @ Registry()
    return Draft202012Validator(schemas.load(name), registry=registry)
