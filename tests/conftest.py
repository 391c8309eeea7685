"""What all tests share: no model hub, and no test that is skipped unnoticed."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

torch.set_num_threads(1)  # the models are so small that sharing the work takes longer than doing it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips",
        action="store_true",
        help="fail where a test was skipped or expected to fail",
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With ``--no-skips``, a run in which a test did not really run is a failed run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("--no-skips") or exitstatus != 0 or reporter is None:
        return
    if reporter.stats.get("skipped") or reporter.stats.get("xfailed"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
