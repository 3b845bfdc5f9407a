"""`gnnexp completion SHELL`: a script by which the tab key completes commands, options, sweeps, choices and keys.

The script contains the names of commands, options and sweeps, so these need no process. Only for `key=value` it asks
`gnnexp run --shell-completion query=bash`, which imports Hydra.
"""

from __future__ import annotations

import argparse

from gnnexp.cli.arguments import COMMANDS, COMPOSING
from gnnexp.cli.output import Answer
from gnnexp.config.folders import product_sweeps
from gnnexp.errors import ConfigError, Problem

# Commands whose first word is a sweep.
_OF_SWEEPS = ("sweep", "tune", "report", "plan", "export", "status", "cancel")
# zsh runs bash's completion after `bashcompinit`.
SHELLS = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}
_SCRIPT = """{before}_gnnexp_completion() {{
    local line="${{COMP_LINE:0:$COMP_POINT}}" word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" options=""
    case "$command" in
{options}
    esac
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    elif [[ "$word" == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif (( COMP_CWORD == 2 )) && [[ " {of_sweeps} " == *" $command "* ]]; then
        COMPREPLY=($(compgen -W "{sweeps}" -- "$word"))
    elif [[ " {composing} " == *" $command "* ]]; then
        COMPREPLY=($(COMP_LINE="gnnexp ${{line#*"$command"}}" gnnexp run --shell-completion query=bash))
    fi
}}
complete -o nospace -o default -F _gnnexp_completion gnnexp"""


def main(options: argparse.Namespace) -> Answer:
    """Print the script of a shell.

    Raises:
        ConfigError: there is none for this shell.
    """
    if options.shell not in SHELLS:
        raise ConfigError(
            Problem("completion", options.shell, f"must be {' or '.join(SHELLS)}", 'eval "$(gnnexp completion bash)"')
        )
    print(script(options.shell))
    return Answer({"exit_code": 0})


def script(shell: str) -> str:
    """The script for bash or zsh."""
    flags = {
        name: [flag for names, _ in arguments for flag in names if flag.startswith("-")]
        for name, (_, _, _, arguments) in COMMANDS.items()
    }
    cases = "\n".join(
        f'    {name}) options="{" ".join(["--help", *flags_of_name])}";;' for name, flags_of_name in flags.items()
    )
    return _SCRIPT.format(
        before=SHELLS[shell],
        commands=" ".join(COMMANDS),
        composing=" ".join(COMPOSING),
        sweeps=" ".join(product_sweeps()),
        of_sweeps=" ".join(_OF_SWEEPS),
        options=cases,
    )
