"""Checks of the assignment on defences."""

import math

import torch
from torch import Generator, Tensor

from fedleak_book.coursework.assignment import Assignment, as_tensor, normal, same, seed_of, within
from fedleak_book.coursework.given import noisy_clients
from fedleak_book.coursework.outcomes import Student, Trouble

ASSIGNMENT = Assignment("defences")


def _updated(student: Student, what: str, update: dict[str, Tensor], *arguments: float) -> dict[str, Tensor]:
    got = student(what, update, *arguments)
    if not isinstance(got, dict) or set(got) != set(update):
        raise Trouble(f"{what}: expected a dictionary with the keys {', '.join(update)}")
    return {name: as_tensor(value, f"{what}[{name!r}]") for name, value in got.items()}


def _keep(tensor: Tensor, by: Tensor, count: int) -> Tensor:
    """Keep the entries of a tensor where `by` is largest."""
    indices = by.flatten().topk(count).indices
    return torch.zeros_like(tensor).flatten().scatter(0, indices, tensor.flatten()[indices]).view_as(tensor)


@ASSIGNMENT.check(1)
def clip(student: Student, generator: Generator) -> None:
    """A large update is scaled to the bound as a whole; a small one is left as it is."""
    update = {"weight": normal(generator, 4, 3), "bias": 5 * normal(generator, 4)}
    norm = torch.cat([t.flatten() for t in update.values()]).norm()
    bound = 0.3 * norm.item()
    got = _updated(student, "clip", update, bound)
    for name, tensor in update.items():
        alone = tensor / max(1.0, tensor.norm().item() / bound)
        mistakes = {
            "this update is too large and was not clipped": tensor,
            "ONE norm over all tensors: otherwise T tensors together have norm bound * sqrt(T)": alone,
            "scale the whole tensor, do not clamp its entries": tensor.clamp(-bound, bound),
            "the norm is the ROOT of the sum of squares": tensor * bound / norm**2,
            "this is larger than before: divide by the norm": tensor / 0.3,
        }
        same(got[name], tensor * 0.3, f"clip, {name}", mistakes, hint="divide by max(1, ||update|| / bound)")
    small = _updated(student, "clip", update, 2 * norm.item())["weight"]
    hint = "a factor of at most 1: a small update is not blown up"
    same(small, update["weight"], "clip of an update within the bound", hint=hint)


@ASSIGNMENT.check(2)
def add_noise(student: Student, generator: Generator) -> None:
    """Independent Gaussian noise of deviation multiplier times bound, from the seed."""
    update = {"weight": torch.ones(300, 100, dtype=torch.float64), "bias": torch.zeros(5000, dtype=torch.float64)}
    seed, bound, multiplier = seed_of(generator), 3.0, 1.7
    seeds = (seed, seed, seed + 1)
    first, again, other = (_updated(student, "add_noise", update, bound, multiplier, seed) for seed in seeds)
    noise, of_bias = (first[name] - update[name] for name in update)
    deviation, right = noise.std().item(), bound * multiplier
    mistakes = {
        "`randn` is multiplied by the standard deviation, not by its root": math.sqrt(right),
        "`randn` is multiplied by the standard deviation, not by the variance": right**2,
        "the multiplier is relative to the bound: multiply by it": multiplier,
    }
    if min(noise.std(0).min().item(), noise.std(1).min().item()) < 0.5 * deviation:
        raise Trouble("add_noise: entries share their noise", "draw a tensor of the parameter's shape")
    hint = "standard deviation: noise multiplier times bound"
    same(deviation, right, "deviation of the noise", mistakes, hint=hint, tolerance=0.05)
    within(noise.mean().item(), -0.15, 0.15, "mean of the noise", "the noise is added to the update")
    same(of_bias.std().item(), right, "deviation of the bias' noise", hint="every tensor gets noise", tolerance=0.1)
    # within 0.674 deviations are 50 % of normal noise, 61 % of Laplace noise and 39 % of uniform noise
    half = (noise.abs() < 0.6745 * right).double().mean().item()
    within(half, 0.48, 0.52, "share of the noise within 0.674 deviations", "the noise is Gaussian: use `randn`")
    if torch.corrcoef(torch.stack([noise.flatten()[: len(of_bias)], of_bias]))[0, 1] > 0.5:
        raise Trouble("add_noise: two tensors got the same noise", "one generator for all tensors, seeded once")
    if not torch.equal(first["weight"], again["weight"]):
        raise Trouble("add_noise: the same seed gave different noise", "torch.Generator().manual_seed(seed)")
    if torch.equal(first["weight"], other["weight"]):
        raise Trouble("add_noise: another seed gave the same noise", "torch.Generator().manual_seed(seed)")


@ASSIGNMENT.check(2)
def sparsify(student: Student, generator: Generator) -> None:
    """The largest entries are sent, and the rest is kept for the next round."""
    gradient, rest = normal(generator, 4, 5), normal(generator, 4, 5)
    whole = gradient + rest
    got = student("sparsify", gradient, rest, 0.75)
    if not isinstance(got, list | tuple) or len(got) != 2:
        raise Trouble("sparsify: expected a pair (what is sent, what is kept)")
    right = _keep(whole, whole.abs(), 5)
    mistakes = {
        "add what was kept from earlier rounds BEFORE choosing": _keep(gradient, gradient.abs(), 5),
        "`discard` is the share that is NOT sent": _keep(whole, whole.abs(), 15),
        "send the LARGEST entries": _keep(whole, -whole.abs(), 5),
        "by magnitude: a large negative entry matters as much": _keep(whole, whole, 5),
    }
    hint = "add the memory, then send the entries of largest magnitude"
    same(got[0], right, "sparsify, what is sent", mistakes, hint=hint)
    mistakes = {
        "what was not sent of the SUM: the memory is lost here": gradient - right,
        "keep what was NOT sent": right,
        "the memory has to be renewed in every round": rest,
    }
    same(got[1], whole - right, "sparsify, what is kept", mistakes, hint="what was not sent, memory included")


@ASSIGNMENT.check(2)
def exact_share(student: Student, generator: Generator) -> None:
    """The share of exact counts under noise of deviation sigma is that of the normal distribution."""
    for spread, batch in ((0.7, 32), (0.2, 8), (2.0, 32)):  # B sigma, and B
        sigma, x = spread / batch, 1 / (2 * spread * math.sqrt(2))
        mistakes = {
            "erf takes its argument over the root of 2": math.erf(x * math.sqrt(2)),
            "wrong on BOTH sides: this is P(noise < 1/2)": 0.5 * (1 + math.erf(x * math.sqrt(2))),
            "half the width: a count may be off by 1/2, not by 1": math.erf(2 * x),
            "the count's error is B sigma, not sigma or sigma / B": [math.erf(batch * x), math.erf(batch**2 * x)],
            "this is the share of WRONG counts": math.erfc(x),
        }
        hint = "a count is off by B times the noise, and right if that is less than a half"
        what = f"exact_share for sigma = {sigma:.4g}, B = {batch}"
        same(student("exact_share", sigma, batch), math.erf(x), what, mistakes, hint=hint)


@ASSIGNMENT.check(1)
def clamped_share(student: Student, generator: Generator) -> None:
    """Clamping helps the counts that are 0, and these by half of their errors."""
    batch, spread = 32, 0.4 + torch.rand((), generator=generator).item()
    share, zeros = math.erf(1 / (2 * spread * math.sqrt(2))), 0.3
    right = zeros * (1 + share) / 2 + (1 - zeros) * share
    mistakes = {
        "clamping helps counts of 0: an error below -1/2 no longer matters there": share,
        "a count of 0 can still come out as 1 or more: only errors DOWN are gone": zeros + (1 - zeros) * share,
        "only counts of 0 gain": (1 + share) / 2,
        "weigh both kinds: zeros, and 1 - zeros": [
            zeros * (1 + share) / 2 + share,
            (1 + share) / 2 + (1 - zeros) * share,
        ],
        "`zeros` is the share of the counts that ARE 0": (1 - zeros) * (1 + share) / 2 + zeros * share,
    }
    what = f"clamped_share for sigma = {spread / batch:.4g}, B = {batch}, zeros = {zeros}"
    hint = "P(B noise < 1/2) for a count of 0, P(|B noise| < 1/2) for another"
    same(student("clamped_share", spread / batch, batch, zeros), right, what, mistakes, hint=hint)


RIGHT = {"exact_share": lambda sigma, batch: math.erf(1 / (2 * math.sqrt(2) * batch * sigma))}


@ASSIGNMENT.measurement(
    2, 1, RIGHT, "add sigma times the noise to the gradient, take it from p, multiply by B, round; no clamping"
)
def measure(functions: Student, seed: int) -> list[dict]:
    """The shares are those that your `exact_share` predicts, and that the noisy gradients give."""
    logits, labels, noise = noisy_clients(seed)
    truth, rows = torch.nn.functional.one_hot(labels, 10).sum(1), []
    p = logits.softmax(1)
    for sigma in (0.003, 0.01, 0.03, 0.1):
        recovered = (32 * (p - (p - truth / 32 + sigma * noise))).round()
        predicted = functions("exact_share", sigma, 32).item()
        rows.append({"sigma": sigma, "predicted": predicted, "measured": float((recovered == truth).double().mean())})
    return rows
