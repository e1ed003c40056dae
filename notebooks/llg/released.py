"""LLG: the released code's compression, and the privacy budget of the paper's noise."""

import math


class ReleasedCompression:
    """What LLG's released code calls compression: no compression, kept for Fig. 7 (c, f).

    It ranks the n class sums of the head's gradient, takes the share `discard` with the
    smallest magnitudes, and uses those CLASS numbers as positions in the list of parameter
    tensors: these are set to zero as a whole.
    """

    def __init__(self, discard, head_weight):
        if not 0 <= discard < 1:
            raise ValueError(f"discard is in [0, 1), got {discard}")
        self.discard, self.head_weight = discard, head_weight

    def __call__(self, updates, clients):
        """The updates with whole tensors zeroed."""
        sums = updates[self.head_weight].sum(dim=2)
        zeroed = sums.abs().argsort(dim=1)[:, : round(self.discard * sums.shape[1])]
        return {
            name: t * (zeroed != position).all(dim=1).view(-1, *[1] * (t.dim() - 1))
            for position, (name, t) in enumerate(updates.items())
        }


def privacy_budget(noise_multiplier, sample_rate, rounds, delta=1e-5, *, classic=False):
    """Epsilon of the subsampled Gaussian mechanism, from Opacus' accountant.

    Parameters
    ----------
    noise_multiplier
        Standard deviation of the noise on the sum over the sensitivity of one client.
    sample_rate, rounds, delta
        Share of the clients in a round; number of rounds; target delta.
    classic
        Convert with the tail bound of the original moments accountant (Abadi et al.
        2016, Theorem 2), instead of the tighter one that Opacus uses today.
    """
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis import rdp

    if not (
        noise_multiplier > 0 and 0 < sample_rate <= 1 and rounds > 0 and 0 < delta < 1
    ):
        raise ValueError(
            "noise_multiplier and rounds are positive, sample_rate is in (0, 1], delta in "
            f"(0, 1); got {noise_multiplier}, {rounds}, {sample_rate} and {delta}"
        )
    if not classic:
        accountant = RDPAccountant()
        accountant.history = [(noise_multiplier, sample_rate, rounds)]
        return float(accountant.get_epsilon(delta))
    orders = RDPAccountant.DEFAULT_ALPHAS
    moments = rdp.compute_rdp(
        q=sample_rate, noise_multiplier=noise_multiplier, steps=rounds, orders=orders
    )
    return float(
        min(
            m + math.log(1 / delta) / (a - 1)
            for m, a in zip(moments, orders, strict=True)
        )
    )
