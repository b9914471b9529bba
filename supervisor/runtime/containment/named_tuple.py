"""`typing.NamedTuple` without `typing`, which would be a quarter of the guardian's memory.

A type checker sees the original.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple
else:

    class _OfAnnotations(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            del bases
            fields = body["__annotations__"]
            defaults = [body.pop(field) for field in fields if field in body]
            plain = namedtuple(name, fields, defaults=defaults)  # noqa: PYI024 - that is `typing`'s
            return type(name, (plain,), {**body, "__slots__": ()})

    NamedTuple = type.__new__(_OfAnnotations, "NamedTuple", (), {})

__all__ = ["NamedTuple"]
