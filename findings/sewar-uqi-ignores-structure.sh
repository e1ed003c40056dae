#!/usr/bin/env bash
# Version:  sewar 0.4.10
# Expected: uqi is Wang and Bovik's universal quality index: correlation times closeness of mean and contrast, averaged over windows
#           of 8 x 8. 1 for the image itself, about 0 for another picture or noise, negative for its negative.
# Seen:     the windows' means are put where the formula has sums: a covariance becomes 64 E[xy] - E[x] E[y], which for images is
#           nearly 64 E[x] E[y] whatever they show. Another picture gets .89, its negative .82, pure noise .82.
# Hurts:    who reports UQI of reconstructions, denoised or fused images: all look nearly perfect. d_lambda, d_s and qnr are made of it.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check sewar==0.4.10 numpy==2.4.6 scipy==1.17.1
env/bin/python -W ignore - <<'END'
import numpy as np
from scipy.ndimage import gaussian_filter
from sewar import uqi

def picture(seed):
    noise = np.random.default_rng(seed).normal(size=(128, 128))
    image = sum(width * gaussian_filter(noise, width) for width in (1, 4, 16))  # coarse and fine structure, as in photographs
    return 255 * (image - image.min()) / np.ptp(image)

def index(x, y):  # the paper's formula, window by window
    x, y = (np.lib.stride_tricks.sliding_window_view(image, (8, 8)).reshape(-1, 64) for image in (x, y))
    mx, my = x.mean(1), y.mean(1)
    covariance = (x * y).mean(1) - mx * my
    return float((4 * covariance * mx * my / ((x.var(1) + y.var(1)) * (mx**2 + my**2))).mean())

image, noise = picture(0), np.random.default_rng(1).uniform(0, 255, (128, 128))
others = {"itself": image, "another picture": picture(1), "its negative": 255 - image, "noise": noise}
seen = {name: (float(uqi(image, other)), index(image, other)) for name, other in others.items()}
for name, (value, right) in seen.items():
    print(f"a picture and {name}: uqi {value:.3f}, the formula {right:.3f}")
assert all(abs(value - 1) < 1e-9 for value in seen.pop("itself"))
assert all(value > 0.8 and right < 0.05 for value, right in seen.values()), "changed"
END
