"""The page's mod that refuses crafted models, with Flower's own apps and messages."""

import logging

import pytest
import torch
from flwr.app import ArrayRecord, Message, RecordDict
from networks import normed as network
from torch import nn

from fedleak.attacks.labels import lia_sa
from fedleak.platforms.flower import InProcess
from fedleak_book import paths


def muted():
    """A model whose weights alone look honest: its ReLUs give 0."""
    model = network()
    nn.init.constant_(model[1].bias, -8)
    return model


@pytest.mark.parametrize(
    ("make", "refused"),
    [(network, False), (lambda: lia_sa.fishing_model(network(), "vector", 0, 2, 0), True), (muted, True)],
)
def test_a_client_refuses_crafted_models_and_trains_on_honest_ones(make, refused, caplog):
    page = (paths.root() / "book" / "inspection.md").read_text(encoding="utf-8")
    scope = {"Net": network, "samples": torch.rand(6, 3), "log": logging.getLogger(__name__)}
    exec(page.partition("```python\n")[2].partition("```")[0], scope)
    scope["app"].train()(lambda message, context: Message(message.content, reply_to=message))
    scope["app"].evaluate()(lambda message, context: Message(message.content, reply_to=message))
    grid, content = InProcess(scope["app"], 1), RecordDict({"arrays": ArrayRecord(make().state_dict())})
    train, evaluate = (
        grid.send_and_receive([grid.create_message(content, kind, 1, "1")])[0] for kind in ("train", "evaluate")
    )
    assert (train.has_error(), evaluate.has_error()) == (refused, False)
    if refused:
        assert "dead" not in train.error.reason, "the server does not learn the findings"
        assert "not trained: " in caplog.text
