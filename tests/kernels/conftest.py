"""With SPECDEMO_CHECK_JOBS=1 every job of these tests is checked before it runs."""

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def check_every_job():
    if os.environ.get("SPECDEMO_CHECK_JOBS", "") not in ("", "0"):
        import job_check

        from specdemo.kernels.runtime import CompiledLayers

        CompiledLayers.inspect = job_check.inspect
