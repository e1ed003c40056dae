"""Networks that are in no zoo."""

import torch
from torch import nn


class Residual(nn.Module):
    """An MLP on 20 numbers with a residual connection."""

    def __init__(self, n_classes=4, bias=True):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(20, 32), nn.Linear(32, 32), nn.Linear(32, n_classes, bias=bias)

    def forward(self, x):
        x = torch.relu(self.a(x))
        return self.c(x + torch.relu(self.b(x)))


class Patches(nn.Module):
    """A small ConvNet with LayerNorm, GELU and dropout, whose head has no bias."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 4, stride=4), nn.LayerNorm(16)
        self.mix, self.drop, self.out = nn.Linear(16, 16), nn.Dropout(0.2), nn.Linear(16, 6, bias=False)

    def forward(self, x):
        x = self.norm(self.stem(x).permute(0, 2, 3, 1))
        x = x + nn.functional.gelu(self.mix(x))
        return self.out(self.drop(x.mean((1, 2))))


class Text(nn.Module):
    """Fifty tokens' embeddings, their mean, a layer with a ReLU, and six classes."""

    def __init__(self):
        super().__init__()
        self.words, self.body, self.fc = nn.Embedding(50, 16), nn.Linear(16, 32), nn.Linear(32, 6)

    def forward(self, tokens):
        return self.fc(self.body(self.words(tokens).mean(1)).relu())


class Two(nn.Module):
    """Has two heads, both declared before the rest; gives the outputs of one, or of both."""

    def __init__(self, both=False):
        super().__init__()
        self.both, self.head, self.other, self.body = both, nn.Linear(20, 7), nn.Linear(20, 7), nn.Linear(20, 20)

    def forward(self, x):
        x = self.body(x).relu()
        return (self.head(x), self.other(x)) if self.both else self.head(x)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 5))
