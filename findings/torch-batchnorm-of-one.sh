#!/usr/bin/env bash
# Version:  torch 2.14.1, on a CPU
# Expected: the gradient of a batch norm in training mode depends on the numbers of its input, not on their strides.
# Seen:     one image of a channels-last batch, images[0].unsqueeze(0), has strides (C, 1, WC, C). If the gradient of the
#           outputs has other strides, as behind Flatten, the gradients of input, weight and bias are wrong by more than
#           their own size. The outputs are right, there is no warning, and a contiguous copy has the right gradients.
# Hurts:    clients that train in batches of one, and whoever compares or inverts the gradients of single samples.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check torch==2.14.1 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import torch
from torch import nn

torch.manual_seed(0)
network = nn.Sequential(nn.BatchNorm2d(16), nn.Flatten(), nn.Linear(16 * 36, 4)).train()
images = torch.randn(8, 16, 6, 6).to(memory_format=torch.channels_last)


def gradients(x):
    x = x.detach().requires_grad_()
    outputs = network(x)
    return outputs, torch.autograd.grad(outputs.square().sum(), [x, *network[0].parameters()])


one = images[0].unsqueeze(0)
outputs, found = gradients(one)
same_outputs, expected = gradients(one.contiguous())
errors = [((f - e).norm() / e.norm()).item() for f, e in zip(found, expected)]
print(f"strides {one.stride()}: outputs differ by {(outputs - same_outputs).abs().max():.1e}; "
      f"relative error of the gradients of input, weight, bias: {', '.join(f'{e:.2f}' for e in errors)}")
_, of_two = gradients(images[:2])
_, expected = gradients(images[:2].contiguous())
print("two images:", ", ".join(f"{((f - e).norm() / e.norm()):.0e}" for f, e in zip(of_two, expected)))
assert torch.allclose(outputs, same_outputs, atol=1e-5), "changed: the outputs differ"
assert min(errors) > 0.1, "changed: the gradients are right now"
END
