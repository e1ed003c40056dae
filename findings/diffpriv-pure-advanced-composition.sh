#!/usr/bin/env bash
# Version:  diffpriv-pure 0.1.0
# Expected: PrivacyBudget.advanced_composition(n, ε, δ) gives a pair (ε, δ) that n releases keep: by the theorem of that name
#           ε sqrt(2 n ln(1/δ')) + n ε (exp(ε) - 1), with δ' added to n δ.
# Seen:     the second term and δ' are left out. A hundred yes-or-no answers by randomised response at ε = 1 are said to keep (48,
#           .001), but at 48 their δ is .37. (At ε = .1 the pair is safe.)
# Hurts:    who budgets many queries of ε = .5 or more with it: the δ that is reached is 4 to 370 times the one stated.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; cd "$folder"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip install -q --disable-pip-version-check diffpriv-pure==0.1.0
env/bin/python -W ignore - <<'END'
import math
from diffpriv_pure import PrivacyBudget

def reached(epsilon, number, total):
    """δ of so many randomised responses at the budget `total`, exactly: each answer is the true one with chance p."""
    p, delta = math.exp(epsilon) / (1 + math.exp(epsilon)), 0.0
    for true in range(number + 1):
        loss = (2 * true - number) * epsilon
        if loss > total:
            delta += math.comb(number, true) * p**true * (1 - p) ** (number - true) * (1 - math.exp(total - loss))
    return delta

number, delta = 100, 1e-5
for epsilon in (0.1, 0.5, 0.7, 1.0):
    total, said = PrivacyBudget(1.0).advanced_composition(number, epsilon, delta)
    theorem = total + number * epsilon * math.expm1(epsilon)
    got = reached(epsilon, number, total)
    print(f"{number} answers of epsilon {epsilon}: said ({total:.2f}, {said:.3f}), reached there: delta {got:.5f}; theorem: epsilon {theorem:.2f}")
    assert reached(epsilon, number, theorem) <= said + delta and abs(total - epsilon * math.sqrt(2 * number * math.log(1 / delta))) < 1e-9
    assert (got > 2 * said) == (epsilon >= 0.5), "changed"
END
