"""The reference of the command line: what `gnnexp COMMAND --help` prints."""

from __future__ import annotations

import argparse
from functools import partial

from gnnexp.cli.main import make_parser

HEAD = """# Command line

What `gnnexp --help` and `gnnexp COMMAND --help` print, made of the parser itself when the site is built.
Exit codes: 0 done, 1 a run failed, 2 a mistake of the user (nothing was started), 128 + n ended by signal n.
"""


def commands_page() -> str:
    """The page's text."""
    parser = make_parser()
    found = [HEAD, _fence(parser)]
    for name, command in _commands(parser).items():
        found += [f"## gnnexp {name}\n", _fence(command)]
    return "\n".join(found)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (group,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(group.choices)


def _fence(parser: argparse.ArgumentParser) -> str:
    # As wide as a page, whatever the terminal is that builds it.
    parser.formatter_class = partial(argparse.RawDescriptionHelpFormatter, width=100)
    return f"```text\n{parser.format_help().rstrip()}\n```\n"
