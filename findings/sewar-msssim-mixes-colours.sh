#!/usr/bin/env bash
# Version:  sewar 0.4.10
# Expected: msssim of a colour image, "H x W x C", treats each channel as its ssim does: halved in height and width, never blended,
#           so that the order of the channels does not matter.
# Seen:     the filter in front of each halving has size 2 along the channels, too: each time green becomes the mean of red and green,
#           blue that of green and blue. What differs in sign between channels cancels: noise of opposite sign in green scores .91
#           where each channel alone has .83, and .85 in another order of the same channels. Grey images are right.
# Hurts:    who compares colour reconstructions: false colours are hardly counted, and the score depends on RGB or BGR or RBG.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check sewar==0.4.10 numpy==2.4.6 scipy==1.17.1
env/bin/python -W ignore - <<'END'
import numpy as np
from scipy.ndimage import gaussian_filter
from sewar import msssim

rng = np.random.default_rng(0)
image = sum(width * gaussian_filter(rng.normal(size=(192, 192, 3)), (width, width, 0)) for width in (1, 4, 16))
image = 50 + 150 * (image - image.min()) / np.ptp(image)
noise = rng.normal(0, 20, (192, 192))
for name, signs in {"the same in all channels": (1, 1, 1), "of opposite sign in green": (1, -1, 1)}.items():
    pair = [image, image + noise[:, :, None] * signs]
    alone = [float(msssim(*(np.ascontiguousarray(x[:, :, c]) for x in pair), MAX=255)) for c in range(3)]
    orders = {order: float(msssim(*(x[:, :, ["RGB".index(c) for c in order]] for x in pair), MAX=255)) for order in ("RGB", "RBG")}
    print(f"noise {name}: channels alone {[round(a, 3) for a in alone]}, together {({k: round(v, 3) for k, v in orders.items()})}")
assert orders["RGB"] > max(alone) + 0.05 and abs(orders["RGB"] - orders["RBG"]) > 0.02, "changed"
END
