"""Secure aggregation after Bonawitz et al. (CCS 2017), and the plain sum that it computes.

The server learns the sum of the clients' updates and nothing about a single one: each client adds masks, integers
modulo 2^64, one shared with every other client (they cancel in the sum) and one of its own. Secret shares of both kinds
of seed let the server take away what is left over when clients drop out. Keys, key derivation, key stream and
encryption are from `cryptography`, Shamir's sharing from `pycryptodome`; numpy's uint64 adds modulo 2^64.

What is left out is the authentication that Bonawitz et al. add against a server that cheats in THIS protocol (signed
keys and the consistency check): LIA-SA's server keeps to it, and cheats with the model that it sends.
"""

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from torch import Tensor

from fedleak.federated.update import Update

Entropy = Callable[[int], bytes]
"""``entropy(n)``: n random bytes."""


@dataclass(frozen=True)
class FixedPoint:
    """Real numbers in [-bound, bound] as signed integers of `bits` bits, and these as integers modulo 2^64.

    Raises
    ------
    ValueError
        For fewer than 2 or more than 53 bits (a double's), or a bound that is not a positive number.
    """

    bits: int = 32
    bound: float = 16.0

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 53:
            raise ValueError(f"bits is between 2 and 53 (the precision of a double), got {self.bits}")
        if not (self.bound > 0 and math.isfinite(self.bound)):
            raise ValueError(f"bound is a positive number, got {self.bound}")

    @property
    def step(self) -> float:
        """The distance of neighbouring numbers: a single value is off by at most half of it."""
        return self.bound / (2 ** (self.bits - 1) - 1)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return the integers, uint64, of any shape.

        Raises
        ------
        ValueError
            If a value is NaN, infinite or outside the bound: it would be cut off silently.
        """
        if not np.isfinite(values).all():
            raise ValueError("NaN or infinite values cannot be encoded")
        if values.size and (largest := np.abs(values).max()) > self.bound:
            raise ValueError(f"a value of size {largest:.3g} exceeds the encoding's bound of {self.bound:g}: raise it")
        return np.rint(values.astype(np.float64) / self.step).astype(np.int64).view(np.uint64)

    def decode(self, integers: np.ndarray) -> np.ndarray:
        """Return the real numbers, float64, of encoded ones or of their sums."""
        return integers.view(np.int64) * self.step

    def check(self, clients: int) -> None:
        """Refuse sums that 64 bits cannot hold."""
        if clients * 2 ** (self.bits - 1) > 2**63:
            raise ValueError(
                f"the sum of {clients} numbers of {self.bits} bits does not fit in 64 bits: use fewer bits"
            )


def mask(seed: bytes, size: int) -> np.ndarray:
    """Expand a 16-byte seed to `size` integers modulo 2^64: ChaCha20's key stream, under a key derived by HKDF."""
    cipher = Cipher(algorithms.ChaCha20(derive(seed, b"mask"), bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(8 * size)), dtype=np.uint64)


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Derive a 32-byte key for a purpose (HKDF with SHA-256)."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"fedleak " + purpose).derive(secret)


class Party:
    """One client's side of the protocol, numbered 1 … U, with its encoded update ``[d]``; methods are its rounds.

    `entropy` is the source of its keys and seeds. The sum does not depend on it.
    """

    def __init__(self, number: int, vector: np.ndarray, entropy: Entropy = os.urandom):
        self.number, self.vector = number, vector
        self._cipher_key = X25519PrivateKey.from_private_bytes(entropy(32))
        self._mask_secret = entropy(32)
        self._mask_key = X25519PrivateKey.from_private_bytes(self._mask_secret)
        self._own_seed = entropy(16)

    def advertise_keys(self) -> tuple[bytes, bytes]:
        """Round 0: publish two public keys, one for encrypting shares, one for masks."""
        return self._cipher_key.public_key().public_bytes_raw(), self._mask_key.public_key().public_bytes_raw()

    def share_keys(self, keys: Mapping[int, tuple[bytes, bytes]], threshold: int) -> dict[int, bytes]:
        """Round 1: Shamir shares of the mask key (two halves) and of its own seed, encrypted for every client."""
        self._keys = dict(keys)
        halves = (self._mask_secret[:16], self._mask_secret[16:], self._own_seed)
        pieces = [dict(Shamir.split(threshold, len(keys), secret, ssss=False)) for secret in halves]
        return {
            v: self._box(v, self.number, v).encrypt(bytes(12), b"".join(p[v] for p in pieces), None)
            for v in sorted(keys)
        }

    def receive_shares(self, sealed: Mapping[int, bytes]) -> None:
        """End of round 1: decrypt the shares that the others sent through the server."""
        self._shares = {u: self._box(u, u, self.number).decrypt(bytes(12), box, None) for u, box in sealed.items()}

    def masked_input(self) -> np.ndarray:
        """Round 2: the vector under its own mask and one for every other client, signs by their order."""
        total = self.vector + mask(self._own_seed, self.vector.size)
        for v in self._keys:
            if v != self.number:
                pairwise = mask(agree(self._mask_key, self._keys[v][1]), self.vector.size)
                total = total + pairwise if self.number < v else total - pairwise
        return total

    def unmask(self, survivors: Collection[int]) -> dict[int, bytes]:
        """Round 3: of a survivor the share of its own seed, of one who dropped out that of its mask key, never both."""
        return {u: share[32:] if u in survivors else share[:32] for u, share in self._shares.items()}

    def _box(self, other: int, sender: int, receiver: int) -> ChaCha20Poly1305:
        # The key is of one message, from `sender` to `receiver`, so that the nonce can be constant.
        key = self._cipher_key.exchange(X25519PublicKey.from_public_bytes(self._keys[other][0]))
        return ChaCha20Poly1305(derive(key, f"share {sender} {receiver}".encode()))


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the 16-byte seed that two clients share (X25519, then HKDF)."""
    return derive(private.exchange(X25519PublicKey.from_public_bytes(public)), b"pairwise")[:16]


@dataclass(frozen=True)
class Transcript:
    """What the server has after a run of the protocol."""

    masked: dict[int, np.ndarray]
    """Client number to the masked vector that it sent, uint64 ``[d]``: all that it sees of one client."""
    total: np.ndarray
    """Sum of the survivors' vectors, uint64 ``[d]``."""


def run_protocol(clients: Sequence[Party], threshold: int, dropped: Collection[int] = ()) -> Transcript:
    """Run the server's side; the clients numbered in `dropped` leave after they have shared their keys.

    Raises
    ------
    ValueError
        If `threshold` is not between 2 and the number of clients, or fewer clients than that survive.
    """
    if not 2 <= threshold <= len(clients):
        raise ValueError(f"threshold is between 2 and the {len(clients)} clients, got {threshold}")
    by_number = {c.number: c for c in clients}
    survivors = [u for u in by_number if u not in set(dropped)]
    if len(survivors) < threshold:
        raise ValueError(f"only {len(survivors)} of {len(clients)} clients are left, the threshold is {threshold}")
    keys = {u: c.advertise_keys() for u, c in by_number.items()}
    sealed = {u: c.share_keys(keys, threshold) for u, c in by_number.items()}
    for v, client in by_number.items():
        client.receive_shares({u: boxes[v] for u, boxes in sealed.items()})
    masked = {u: by_number[u].masked_input() for u in survivors}
    revealed = {v: by_number[v].unmask(survivors) for v in survivors[:threshold]}
    total = np.sum(list(masked.values()), axis=0)
    for u in by_number:
        parts = [(v, shares[u]) for v, shares in revealed.items()]
        if u in survivors:
            total -= mask(Shamir.combine(parts, ssss=False), total.size)
            continue
        secret = b"".join(Shamir.combine([(v, s[i : i + 16]) for v, s in parts], ssss=False) for i in (0, 16))
        key = X25519PrivateKey.from_private_bytes(secret)
        for v in survivors:  # a survivor added the mask if its number is the lower one
            pairwise = mask(agree(key, keys[v][1]), total.size)
            total = total - pairwise if v < u else total + pairwise
    return Transcript(masked, total)


def plain_sum(updates: Sequence[Update], encoding: FixedPoint | None = None) -> Update:
    """Sum updates in the clear: what secure aggregation gives the server, at no cost.

    With an encoding they are rounded as the protocol does: the result is the same bit by bit, float64.

    Raises
    ------
    ValueError
        If the updates are not gradients of one step, of the same parameters.
    """
    if encoding is not None:
        return _decoded(updates, np.sum(_encoded(updates, encoding), axis=0), encoding)
    _check(updates)
    tensors = {name: sum(u.tensors[name] for u in updates) for name in updates[0].tensors}
    return Update(tensors, "gradient", sum(u.samples for u in updates))  # type: ignore[arg-type]


def secure_sum(
    updates: Sequence[Update],
    encoding: FixedPoint,
    *,
    threshold: int | None = None,
    dropped: Collection[int] = (),
    entropy: Entropy = os.urandom,
) -> tuple[Update, Transcript]:
    """Sum updates by the protocol; return the sum of the survivors' (float64, exact to the encoding) and what was seen.

    Parameters
    ----------
    updates
        The clients' gradients of one step, of the same parameters; client numbers are 1 … U in this order.
    encoding
        How real numbers become integers.
    threshold, dropped
        Clients needed to remove the masks, by default two thirds, rounded up; numbers of those that drop out after
        sharing their keys.
    entropy
        Source of the clients' secrets; the sum does not depend on it.

    Raises
    ------
    ValueError
        If the updates do not go together, the sum does not fit in 64 bits, or too few clients are left.
    """
    vectors = _encoded(updates, encoding)
    if stranger := set(dropped) - set(range(1, len(updates) + 1)):
        raise ValueError(f"clients are numbered 1 to {len(updates)}; there is no {sorted(stranger)} to drop out")
    clients = [Party(u, vector, entropy) for u, vector in enumerate(vectors, 1)]
    done = run_protocol(clients, threshold or max(2, -(-2 * len(clients) // 3)), dropped)
    left = [update for u, update in enumerate(updates, 1) if u not in set(dropped)]
    return _decoded(left, done.total, encoding), done


def _check(updates: Sequence[Update]) -> None:
    if len(updates) < 2:
        raise ValueError(f"aggregation hides a client among others: at least two, got {len(updates)}")
    if any(update.kind != "gradient" or update.steps != 1 for update in updates):
        raise ValueError("aggregated here are gradients of one step (FedSGD), not deltas or several steps")
    shapes = [{name: t.shape for name, t in update.tensors.items()} for update in updates]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError("the updates are of different parameters or shapes")


def _encoded(updates: Sequence[Update], encoding: FixedPoint) -> list[np.ndarray]:
    _check(updates)
    encoding.check(len(updates))
    flat = (torch.cat([u.tensors[n].detach().flatten() for n in updates[0].tensors]) for u in updates)
    return [encoding.encode(vector.cpu().numpy()) for vector in flat]


def _decoded(updates: Sequence[Update], total: np.ndarray, encoding: FixedPoint) -> Update:
    like: Mapping[str, Tensor] = updates[0].tensors
    pieces = torch.from_numpy(encoding.decode(total)).split([t.numel() for t in like.values()])
    tensors = {name: piece.view(t.shape).to(t.device) for (name, t), piece in zip(like.items(), pieces, strict=True)}
    return Update(tensors, "gradient", sum(u.samples for u in updates))
