"""Networks that are in no zoo."""

from itertools import pairwise

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
    """Tokens' embeddings, their mean, a layer with a ReLU, and six classes."""

    def __init__(self, tokens=50, **options):
        super().__init__()
        self.words, self.body, self.fc = nn.Embedding(tokens, 16, **options), nn.Linear(16, 32), nn.Linear(32, 6)

    def forward(self, tokens):
        return self.fc(self.body(self.words(tokens).mean(1)).relu())


class Two(nn.Module):
    """Has two heads, both declared before the rest; gives the outputs of one, or of both."""

    def __init__(self, two_outputs=False):
        super().__init__()
        self.head, self.other, self.body = nn.Linear(20, 6), nn.Linear(20, 6), nn.Linear(20, 20)
        self.two_outputs = two_outputs

    def forward(self, x):
        x = self.body(x).relu()
        return (self.head(x), self.other(x)) if self.two_outputs else self.head(x)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 5))


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


class Behind(nn.Module):
    """Some function of a linear layer's outputs, which are `times` as large as usual."""

    def __init__(self, function, sizes=(12, 20, 6), times=1):
        super().__init__()
        self.function, self.body, self.fc = function, nn.Linear(*sizes[:2]), nn.Linear(*sizes[1:])
        with torch.no_grad():
            self.fc.weight.mul_(times)

    def forward(self, x):
        return self.function(self.fc(self.body(x).relu()))


class Tied(nn.Module):
    """A text classifier whose classes are its words: embedding and last layer have one weight, in either order."""

    def __init__(self, first):
        super().__init__()
        layers = {"embed": nn.Embedding(12, 16), "head": nn.Linear(16, 12)}
        for name in sorted(layers, key=lambda name: name != first):
            self.add_module(name, layers[name])
        self.body, self.embed.weight = nn.Linear(16, 16), self.head.weight

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens).mean(1)).relu())


class LoRA(nn.Module):
    """A frozen layer and an adapter of rank 8; B is 0 at first, or not."""

    def __init__(self, base, fresh=True):
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), 2.0
        self.A = nn.Parameter(torch.randn(8, base.in_features) / 4)
        self.B = nn.Parameter((0.0 if fresh else 0.2) * torch.randn(base.out_features, 8))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.A.T) @ self.B.T


class Peft(nn.Module):
    """The same, laid out as the library peft has it."""

    def __init__(self, base, fresh=True):
        super().__init__()
        self.base_layer, self.scaling = base.requires_grad_(False), {"default": 2.0}
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 8, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(8, base.out_features, bias=False)})
        nn.init.zeros_(self.lora_B["default"].weight) if fresh else None

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x)) * self.scaling["default"]


class Wrapped(nn.Module):
    """A body and a head, trained or not; the head is declared first, and the body has a layer as wide as itself."""

    def __init__(self, wrap=lambda head: head, trained=True):
        super().__init__()
        self.head = wrap(nn.Linear(48, 6))
        self.a, self.b = nn.Linear(20, 48), nn.Linear(48, 48)
        for layer in (self.a, self.b):
            layer.requires_grad_(trained)

    def forward(self, x):
        return self.head(self.b(self.a(x).relu()).relu())


class WideAndDeep(nn.Module):
    """The sum of two last layers."""

    def __init__(self):
        super().__init__()
        self.wide, self.body, self.deep = nn.Linear(20, 6), nn.Linear(20, 32), nn.Linear(32, 6)

    def forward(self, x):
        return self.wide(x) + self.deep(self.body(x).relu())


def frozen(layer):
    return layer.requires_grad_(False)


def bias_alone(layer):
    layer.weight.requires_grad_(False)
    return layer


def dense(*widths, bias=True, seed=0):
    """Fully connected layers of these widths with ReLUs between, in double precision."""
    torch.manual_seed(seed)
    layers = []
    for below, above in pairwise(widths):
        layers += [nn.Linear(below, above, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).double()
