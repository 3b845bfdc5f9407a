"""Our own functions of autograd are differentiable once, and say so if they are asked twice."""

from __future__ import annotations

import ast
from pathlib import Path

import gnnexp
from gnnexp.ops.first_order import FirstOrderFunction

ROOT = Path(gnnexp.__file__).parent


def test_no_class_is_a_plain_function_of_autograd() -> None:
    """Its gradient of a gradient would be wrong without a word."""
    plain = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(
            ast.unparse(base).endswith("Function") and ast.unparse(base) != FirstOrderFunction.__name__
            for base in node.bases
        )
    ]
    assert plain == [f"ops/first_order.py:{FirstOrderFunction.__name__}"]
