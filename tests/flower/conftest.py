"""Flower without telemetry, with its home in a temporary folder, and quiet; a model and clients to share."""

import os
import tempfile

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # before anything imports Flower
os.environ["FLWR_HOME"] = tempfile.mkdtemp(prefix="flower-home-")

import logging

import pytest
import torch


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    torch.manual_seed(0)
