#!/usr/bin/env bash
# Version:  diffpriv-pure 0.1.0
# Expected: private_count adds geometric noise "for pure ε-DP integer counts": as often below the true count as above it, for at
#           one step of the count the chance of each answer may change by a factor of exp(ε) at most.
# Seen:     the noise is never negative. A private count is never below the true one, on average 1 / (exp(ε) - 1) above it, and the
#           answer equal to the true count, the most frequent one, cannot occur if one person more is counted. So no ε holds.
# Hurts:    who publishes counts of patients or votes: the smallest of a few answers is the true count itself, and sums of
#           counts are too large.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check diffpriv-pure==0.1.0
env/bin/python -W ignore - <<'END'
import math
import random
import statistics
from diffpriv_pure import private_count

random.seed(0)
for epsilon in (0.1, 1.0):
    answers = {count: [private_count(count, epsilon) for _ in range(20000)] for count in (1000, 1001)}
    above = statistics.mean(answers[1000]) - 1000
    share = {count: answers[count].count(1000) / 20000 for count in answers}
    print(f"epsilon {epsilon}: smallest of 20,000 answers for 1000: {min(answers[1000])}, mean 1000 + {above:.2f}; "
          f"answer 1000 for 1000 {share[1000]:.3f}, for 1001 {share[1001]:.3f} (factor allowed: {math.exp(epsilon):.2f})")
    assert min(answers[1000]) == 1000 and abs(above * (math.exp(epsilon) - 1) - 1) < 0.05, "changed"
    assert share[1000] > 0.08 and share[1001] == 0, "changed"
END
