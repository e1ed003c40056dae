import pytest


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch):
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)
