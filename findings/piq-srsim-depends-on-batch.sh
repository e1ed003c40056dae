#!/usr/bin/env bash
# Version:  piq 0.8.0, torch 2.11.0
# Expected: srsim(..., reduction="none") gives each pair of images the value that it has alone, as FSIM, VSI, MDSI, HaarPSI, GMSD
#           and SSIM of the same library do.
# Seen:     the saliency maps are scaled to [0, 1] by the extremes of the whole batch: the value of a pair depends on its company,
#           0.79 alone and 0.85 in a batch of 16.
# Hurts:    who compares reconstructions by SR-SIM: values change with the batch size and the order of the images.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check piq==0.8.0 torch==2.11.0 numpy==2.4.6
env/bin/python -W ignore - <<'END'
import piq
import torch

torch.manual_seed(0)
images = torch.nn.functional.interpolate(torch.rand(16, 3, 12, 12), (96, 96), mode="bicubic").clamp(0, 1)
images[1::2] *= torch.linspace(0, 1, 96) > 0.9  # every other image is black but for a strip
noisy = (images + 0.2 * torch.randn_like(images)).clamp(0, 1)

def values(name, size):
    measure = getattr(piq, name)
    return torch.cat([measure(noisy[k:k + size], images[k:k + size], reduction="none").reshape(-1) for k in range(0, 16, size)])

for name in ("fsim", "vsi", "mdsi", "haarpsi", "gmsd", "ssim", "srsim"):
    seen = [values(name, size) for size in (1, 4, 16)]
    print(f"{name}, in batches of 1, 4 and 16: of the first pair {', '.join(f'{v[0]:.4f}' for v in seen)}, "
          f"mean {', '.join(f'{v.mean():.4f}' for v in seen)}")
    change = (seen[0] - seen[2]).abs().max()
    assert change > 0.03 if name == "srsim" else change < 1e-5, "changed"
END
