"""Flower without telemetry, with its home in a temporary folder, and quiet."""

import logging
import os
import tempfile

import pytest

HOME = tempfile.TemporaryDirectory(prefix="flower-home-")  # gone when the tests are
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # before a test imports Flower
os.environ["FLWR_HOME"] = HOME.name


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
