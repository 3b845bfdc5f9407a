"""How-to pages show the examples as they are; the examples' own tests run with all others (`testpaths`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from howto_pages import PAGES, ROOT, files_of, filled

EXAMPLES = ROOT / "examples"
GRAPHS = ("my_graph", "my_tables")  # data that a script makes
CODE = sorted(
    path
    for kind in ("*.py", "*.yaml", "*.toml")
    for path in EXAMPLES.rglob(kind)
    if path.stat().st_size and not {*GRAPHS} & {*path.parts}
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_the_files_as_they_are(page: Path) -> None:
    """`python tests/support/howto_pages.py` writes the pages again."""
    text = page.read_text(encoding="utf-8")
    assert text == filled(text)


def test_every_file_of_an_example_is_shown() -> None:
    shown = {file for page in PAGES for file in files_of(page.read_text(encoding="utf-8"))}
    assert {str(path.relative_to(ROOT)) for path in CODE} == shown


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    """The control: a page whose copy differs in one character is not what `filled` makes."""
    text = filled("before\n<!-- file: examples/layer/my_layers/gated.py -->\nafter\n")
    assert text.startswith("before") and text.endswith("after\n") and filled(text) == text
    assert filled(text.replace("import torch", "import torch as t", 1)) == text


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_what_its_script_makes(name: str, tmp_path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"make_{name}", EXAMPLES / name / "make.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.write(tmp_path)
    for made in tmp_path.iterdir():
        assert made.read_text() == (EXAMPLES / name / made.name).read_text(), made.name


def test_every_example_has_tests_that_run_with_all_others() -> None:
    import tomllib

    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "examples" in options["testpaths"]
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))}
    assert {path.parent.parent.name for path in EXAMPLES.glob("*/tests/test_*.py")} == folders - {*GRAPHS}
