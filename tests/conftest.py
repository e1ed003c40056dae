"""Fixtures of several folders."""

import fcntl
import os

import pytest

# torch and fedleak are imported by what uses them: a run's controller reads this file, too, and computes nothing.


@pytest.fixture(autouse=True)
def seed(request, monkeypatch):
    """Begin every test in the same random state, whatever ran before it in this process.

    ``FEDLEAK_TEST_SEED`` shifts it, and the seed of every `torch.manual_seed`: with `make test-seeds`, a test that
    passes by one lucky seed fails. Tests of printed numbers are marked ``fixed_seed``.
    """
    import torch

    is_fixed = request.node.get_closest_marker("fixed_seed") is not None
    shift, seeded = 0 if is_fixed else int(os.environ.get("FEDLEAK_TEST_SEED", 0)), torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda value: seeded(int(value) + shift))
    torch.manual_seed(0)


@pytest.fixture
def perceptual(monkeypatch, tmp_path):
    """LPIPS on an AlexNet of random weights."""
    import torch
    import torchvision  # it takes a second, and every process of a run collects all files

    from fedleak import metrics

    features = torchvision.models.alexnet().features.state_dict(prefix="features.")
    (tmp_path / "weights").mkdir()
    torch.save(features, tmp_path / "weights" / "alexnet_features_torchvision.pth")
    monkeypatch.setenv("FEDLEAK_DATA", str(tmp_path))
    metrics._perceptual.cache_clear()
    yield
    metrics._perceptual.cache_clear()


@pytest.fixture(scope="session")
def browser():
    """Skip what needs a browser where there is none."""
    import pages  # the tools around the built book

    try:
        pages.chromium()
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Start heavy processes (a browser, another interpreter with torch) while no other module of the run has some."""
    with (tmp_path_factory.getbasetemp().parent / "alone").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
