"""A rank of tests that says what later ranks need: the n-th run says the n-th word of `LESSONS`."""

import atexit
import os
import sys
import threading
import time
from pathlib import Path

import stub_worker

LEARNED: list[str] = []


def main() -> int:
    run_dir = Path(sys.argv[1])
    (run_dir / f"learned_{os.environ['RANK']}").write_text(" ".join(LEARNED))
    atexit.register((run_dir / "asked").write_text, "by atexit")
    threading.Thread(target=lambda: (time.sleep(0.2), (run_dir / "joined").write_text("a thread"))).start()
    stub_worker.main()
    print("the last word", end="")
    return 0


def lesson() -> str:
    so_far = len(list(Path(sys.argv[1]).parent.glob("*/pid_0")))
    word = os.environ["LESSONS"].split(",")[so_far - 1]
    return "x" * (1 << 20) if word == "long" else word


def learn(text: str) -> None:
    if text == "wrong":
        raise ImportError("cannot be learned")
    LEARNED.append(text)
