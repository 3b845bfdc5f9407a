"""Settings for all tests; the fixture `ranks` is `gnnexp.testing.plugin`'s."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Generator
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

# Threads of OpenMP that wait would use a core, and other tests need it. Read when torch is first imported: workers of
# pytest-xdist, ranks and commands inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
from combinations import CHOSEN
from compiled_kernels import CompiledKernels
from costs import Costs
from emulated_axis import WANTED, chosen, setting_of_this_process
from hypothesis import settings
from warm_forks import WarmPopen, source_of_this_process

from emulated_gpu import is_wanted
from gnnexp.errors import ConfigError
from gnnexp.files.leaving import collect_rarely
from gnnexp.testing.ranks import RankPools

# A script's background ignores SIGINT, and `nohup` SIGHUP. Every process that a test starts would inherit this.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(number, handler)

# What tests write need not survive a crash of the machine. Tests that look at this call replace it themselves.
os.fsync = lambda handle: None

# The contract's number of steps takes long: what `make test` runs has fewer, but for some ways of every paradigm.
QUICK, WHOLE = 5, 20
# Of the fixture `ranks`, unless a test is slow.
MOST_RANKS = 4
_POOLS = pytest.StashKey[set[int]]()

# Machines are busy and numba compiles at first use: a deadline per example would only measure that.
settings.register_profile("gnnexp", deadline=None, derandomize=True, print_blob=True, max_examples=50)
# `make nightly` chooses it with --hypothesis-profile: other and more examples every night, by the seed that it prints.
settings.register_profile("nightly", deadline=None, derandomize=False, print_blob=True, max_examples=100)
settings.load_profile("gnnexp")


@pytest.fixture(scope="session")
def ranks(ranks: RankPools) -> RankPools:
    """That of `gnnexp.testing.plugin`. The process that forks its ranks has loaded the kernels of the tests."""
    if not is_wanted():
        get_context("forkserver").set_forkserver_preload(["gnnexp.testing.preloaded", "loaded_kernels"])
        with pytest.MonkeyPatch.context() as patched:  # Python 3.11's server does not get this process's paths
            patched.setenv("PYTHONPATH", str(Path(__file__).parent / "support"), prepend=os.pathsep)
            ensure_running()  # a pool would start it with other modules
    return ranks


@pytest.fixture
def steps(request: pytest.FixtureRequest) -> int:
    """How many steps of training a case compares."""
    return WHOLE if request.node.get_closest_marker("slow") else QUICK


@pytest.fixture(scope="session")
def mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], str]:
    """Put an empty MLflow store into a folder; its URI. MLflow takes seconds to make one, by all of its migrations."""

    @cache
    def empty() -> Path:
        from mlflow import MlflowClient

        file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
        MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
        return file

    def put(folder: Path) -> str:
        return f"sqlite:///{shutil.copy(empty(), folder / 'mlflow.db')}"

    return put


def lacks_dgl(error: BaseException) -> bool:
    """Whether a test failed only because DGL is not installed. PyPI has none for Python after 3.11."""
    if find_spec("dgl") is not None:
        return False
    if isinstance(error, ModuleNotFoundError):
        return error.name == "dgl"
    # A rank's error, and what a test shows of problems that it did not expect, are texts.
    said = "needs the package dgl, which is not installed", "No module named 'dgl'"
    return isinstance(error, ConfigError | AssertionError) and any(words in str(error) for words in said)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test that needs DGL is skipped where DGL is not installed."""
    report = yield
    if call.excinfo is not None and lacks_dgl(call.excinfo.value):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, "Skipped: DGL is not installed")
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The budgets of steps on a GPU, and what was measured (tests/emulated_gpu/test_budgets.py)."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    rows = [
        value
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == "budget"
    ]
    if not rows:
        return
    terminalreporter.section("one steady step on the emulated GPU: found / budget")
    line = "{:<20}{:>6}{:>12}{:>12}{:>16}{:>18}{:>12}".format
    terminalreporter.write_line(line("way", "ranks", "waits", "free waits", "launches", "pageable bytes", "h2d bytes"))
    for row in sorted(rows, key=lambda row: (row["way"], row["ranks"])):
        terminalreporter.write_line(line(*row.values()))


def pytest_configure(config: pytest.Config) -> None:
    """Tests say what they cost, and their commands are forks of a process that has imported everything."""
    if not getattr(config.option, "numprocesses", None):  # whoever starts workers collects nothing
        gc.disable()  # until all tests are collected: little of this becomes garbage
    config.pluginmanager.register(Costs(), "costs")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CompiledKernels(), "compiled kernels")
    os.environ[CHOSEN] = config.option.markexpr
    if not is_wanted() and "GNNEXP_WITHOUT" not in os.environ:
        subprocess.Popen = WarmPopen  # type: ignore[misc]
        if hasattr(config, "workerinput"):  # a worker of pytest-xdist runs many tests
            source_of_this_process()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The emulated device's setting is an axis where `make test-slow` asks for it."""
    if WANTED in os.environ:
        kept = chosen(items, setting_of_this_process())
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


def pytest_collection_finish() -> None:
    """What is there now stays: else collections of garbage go through millions of objects in the middle of tests."""
    gc.collect()
    gc.freeze()
    collect_rarely()
    gc.enable()


def pytest_unconfigure() -> None:
    """At the end Python frees everything: extension modules would report as leaks what is still kept."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test with the mark `interpreter` gets what a user's shell starts."""
    WarmPopen.wanted = item.get_closest_marker("interpreter") is None
    WarmPopen.interpreters.clear()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """An interpreter takes seconds: a test that needs one says so. Those of examples are shown to users as they are.

    A pool keeps its ranks for all later tests, so there are pools of up to `MOST_RANKS`.
    """
    pools = getattr(item, "funcargs", {}).get("ranks")
    if isinstance(pools, RankPools):
        known = item.session.stash.setdefault(_POOLS, set())
        most = max(pools.sizes - known, default=0)
        known |= pools.sizes
        if most > MOST_RANKS and not item.get_closest_marker("slow"):
            pytest.fail(f"{most} ranks: the pools of make test have at most {MOST_RANKS}", pytrace=False)
    if WarmPopen.wanted and WarmPopen.interpreters and item.path.is_relative_to(Path(__file__).parent):
        pytest.fail(f"the mark 'interpreter' is missing: {WarmPopen.interpreters[0]}", pytrace=False)
