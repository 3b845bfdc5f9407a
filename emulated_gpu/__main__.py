"""`python -m emulated_gpu -m MODULE …` or `… SCRIPT …`: run a program on the emulated CUDA device."""

from __future__ import annotations

import runpy
import sys

from emulated_gpu import install


def main() -> None:
    """Install the device, then run the program."""
    words = sys.argv[1:]
    if not words or (words[0] == "-m" and len(words) < 2):
        sys.exit("usage: python -m emulated_gpu (-m MODULE | SCRIPT) ARGUMENTS")
    install()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
