"""How much memory a value holds with all that it refers to, whatever its fields are called."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""Code is there anyway."""


def deep_size(value: object) -> int:
    """Return the bytes of a value and of what it refers to, but for code and classes."""
    seen: dict[int, object] = {}
    left = [value]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(
            one, type | ModuleType | FunctionType | BuiltinFunctionType
        ):
            continue
        seen[id(one)] = one
        left += gc.get_referents(one)
    return sum(map(sys.getsizeof, seen.values()))
