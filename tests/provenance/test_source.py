"""Digests of programs, and which modules importing one may read."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from gnnexp.errors import DataError
from gnnexp.provenance.source import closure, digest_of, imports_of

PROGRAM = '''"""Words."""

import math


class Mine:
    """More words."""

    rate = 0.5

    def scale(self, x):
        """Words
        of two lines."""
        # why
        return x * self.rate  # at the end of a line
'''
SAME = [
    PROGRAM.replace("Words", "Other words"),
    PROGRAM.replace("        # why\n", ""),
    PROGRAM.replace("\n\n\n", "\n\n"),
    PROGRAM.replace("        # why\n", "        # why\n\n        # and why not\n"),
    PROGRAM.replace("\n", " \n").replace("lines. ", "lines."),
]
OTHER = [
    PROGRAM.replace("0.5", "0.50001"),
    PROGRAM.replace("import math", "import cmath"),
    PROGRAM.replace("x * self.rate", "x / self.rate"),
    PROGRAM + 'TEXT = """\n# not a comment\n"""\n',
    PROGRAM + 'TEXT = f"""\n# not a {1} comment\n\n"""\n',
]


def digest(folder: Path, text: str, name: str = "mine.py") -> str:
    file = folder / name
    file.unlink(missing_ok=True)
    file.write_text(text)
    return digest_of(file)


def test_words_do_not_count_and_everything_else_does(tmp_path: Path) -> None:
    digests = [digest(tmp_path, text, f"{place}.py") for place, text in enumerate([PROGRAM, *SAME])]
    assert len(set(digests)) == 1
    others = [digest(tmp_path, text, f"other{place}.py") for place, text in enumerate(OTHER)]
    assert len({digests[0], *others}) == 1 + len(OTHER)


def test_lines_of_a_text_that_look_like_comments_count(tmp_path: Path) -> None:
    text = 'TEXT = """\n# one\n\n"""\n'
    assert digest(tmp_path, text, "a.py") != digest(tmp_path, text.replace("# one", "# two"), "b.py")
    assert digest(tmp_path, text, "a.py") != digest(tmp_path, text.replace("\n\n", "\n"), "c.py")


def test_a_docstring_that_shares_its_line_with_code_is_code(tmp_path: Path) -> None:
    first = digest(tmp_path, 'def f(): "words"; return 1\n', "a.py")
    assert first != digest(tmp_path, 'def f(): "words"; return 2\n', "b.py")


@pytest.mark.parametrize("mark", ["\f", "\u2028", "\x85", "\x1c"], ids=ascii)
def test_characters_that_end_lines_for_text_but_not_for_python(tmp_path: Path, mark: str) -> None:
    text = f'MARKS = "{mark}"\n# {mark}\n\n\ndef f(rate=1):\n    """Words."""\n    return rate\n'
    assert digest(tmp_path, text, "a.py") != digest(tmp_path, text.replace("rate=1", "rate=2"), "b.py")
    assert digest(tmp_path, text, "a.py") == digest(tmp_path, text.replace("Words", "Others"), "c.py")


def test_an_edit_of_the_same_length_is_seen(tmp_path: Path) -> None:
    assert digest(tmp_path, "rate = 1\n") != digest(tmp_path, "rate = 2\n")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfx = 'caf\xc3\xa9'\n",  # the mark of UTF-8, as editors of Windows write it
        b"# -*- coding: latin-1 -*-\nx = 'caf\xe9'\n",
    ],
)
def test_every_encoding_that_python_reads_is_read(tmp_path: Path, content: bytes) -> None:
    file, plain = tmp_path / "mine.py", tmp_path / "plain.py"
    file.write_bytes(content)
    plain.write_text("x = 'caf\u00e9'\n", encoding="utf-8")
    assert digest_of(file) == digest_of(plain)


def test_a_program_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = " + "+".join(["1"] * 20_000))
    with pytest.raises(DataError, match=r"mine\.py"):
        digest_of(tmp_path / "mine.py")


def test_what_is_no_python_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (:\n")
    with pytest.raises(DataError, match=r"broken\.py"):
        digest_of(tmp_path / "broken.py")
    with pytest.raises(DataError, match="readable Python"):
        digest_of(tmp_path / "missing.py")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    files = {
        "mine/__init__.py": "",
        "mine/model.py": "from typing import TYPE_CHECKING\nfrom . import layers\nfrom .deep.inner import f\n"
        "if TYPE_CHECKING:\n    from mine import types_only\n\ndef g():\n    import mine.lazy\n",
        "mine/layers.py": "import torch.nn.functional\nimport helper\n",
        "mine/lazy.py": "",
        "mine/types_only.py": "",
        "mine/unused.py": "",
        "mine/deep/__init__.py": "from ..constants import RATE\n",
        "mine/deep/inner.py": "",
        "mine/constants.py": "RATE = 1\n",
        "helper.py": "import gnnexp.training.train\n",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_everything_that_an_import_may_read_is_found(package: Path) -> None:
    found = closure(["mine.model"], package, ["gnnexp"])
    assert set(found.files) == {
        "mine",
        "mine.model",
        "mine.layers",
        "mine.lazy",
        "mine.deep",
        "mine.deep.inner",
        "mine.constants",
        "helper",
    }
    assert {"torch.nn.functional", "gnnexp.training.train"} <= found.outside
    assert "mine.layers" in imports_of(package / "mine" / "model.py", "mine.model")


def test_compiled_modules_are_found_before_their_sources(package: Path) -> None:
    suffix = EXTENSION_SUFFIXES[0]
    (package / f"mine/layers{suffix}").write_bytes(b"\x7fELF\0one")
    (package / f"mine/lazy{suffix}").mkdir()
    found = closure(["mine.model"], package, ["gnnexp"])
    assert found.files["mine.layers"].name == f"layers{suffix}" and found.files["mine.lazy"].name == "lazy.py"
    assert "helper" not in found.files, "what a compiled module imports is not seen"
    before = digest_of(found.files["mine.layers"])
    found.files["mine.layers"].write_bytes(b"\x7fELF\0other")
    assert digest_of(found.files["mine.layers"]) != before


@pytest.mark.parametrize(
    "listed",
    [
        '__all__ = ["constants", "RATE"]',
        '__all__: list[str] = []\n__all__ += ["constants"]',
        '__all__ = []\n__all__.extend(("constants",))',
    ],
)
@pytest.mark.parametrize("star", ["from mine import *", "from . import *"])
def test_a_star_imports_the_modules_that_a_package_lists(package: Path, star: str, listed: str) -> None:
    (package / "mine" / "__init__.py").write_text(f"{listed}\n")
    (package / "mine" / "lazy.py").write_text(f"{star}\n")
    assert set(closure(["mine.lazy"], package).files) == {"mine", "mine.lazy", "mine.constants"}


def test_a_nested_class_leads_to_its_module(package: Path) -> None:
    assert "mine.layers" in closure(["mine.model.Outer"], package).files


def test_roots_are_followed_even_below_what_is_not(package: Path) -> None:
    assert set(closure(["mine.deep.inner"], package, ["mine"]).files) == {"mine.deep.inner"}
