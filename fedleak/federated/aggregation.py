"""Secure aggregation after Bonawitz et al. (CCS 2017), and the plain sum that it computes.

The server learns the sum of the clients' updates and nothing about a single one: each client adds masks in the field
of integers modulo the prime 2^61 - 1, one shared with every other client (they cancel in the sum) and one of its own.
Secret shares of both kinds of seed let the server take away what is left over when clients drop out. Keys, key
derivation, key stream and encryption are from `cryptography`, Shamir's sharing from `pycryptodome`.

What is left out is the authentication that Bonawitz et al. add against a server that cheats in THIS protocol (signed
keys and the consistency check): LIA-SA's server keeps to it, and cheats with the model that it sends.
"""

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

from fedleak.federated.field import PRIME, FixedPoint, add, subtract
from fedleak.federated.update import Update

__all__ = ["FixedPoint", "Party", "Transcript", "plain_sum", "run_protocol", "secure_sum"]

Entropy = Callable[[int], bytes]
"""``entropy(n)``: n random bytes."""


def mask(seed: bytes, size: int) -> np.ndarray:
    """Expand a 16-byte seed to `size` field elements: ChaCha20's key stream, under a key derived by HKDF.

    61 of every 64 bits are used; their all-ones pattern counts as 0, a bias of 2^-61.
    """
    key = derive(seed, b"mask")
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * size))
    return (np.frombuffer(stream, dtype="<u8") & np.uint64(PRIME)) % np.uint64(PRIME)


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Derive a 32-byte key for a purpose (HKDF with SHA-256)."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"fedleak " + purpose).derive(secret)


class Party:
    """One client's side of the protocol; the method names are its rounds.

    Parameters
    ----------
    number
        1 … U.
    vector
        Its encoded update, field elements ``[d]``.
    entropy
        Source of its keys and seeds. The sum does not depend on it.
    """

    def __init__(self, number: int, vector: np.ndarray, entropy: Entropy = os.urandom):
        self.number, self.vector = number, vector
        self._cipher_key = X25519PrivateKey.from_private_bytes(entropy(32))
        self._mask_secret = entropy(32)
        self._mask_key = X25519PrivateKey.from_private_bytes(self._mask_secret)
        self._own_seed = entropy(16)
        self._shares: dict[int, bytes] = {}

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
        total = add(self.vector, mask(self._own_seed, self.vector.size))
        for v in self._keys:
            if v != self.number:
                pairwise = mask(agree(self._mask_key, self._keys[v][1]), self.vector.size)
                total = add(total, pairwise) if self.number < v else subtract(total, pairwise)
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
    """Client number to the masked vector that it sent, field elements ``[d]``: all that it sees of one client."""
    total: np.ndarray
    """Sum of the survivors' vectors, field elements ``[d]``."""


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
    total = np.zeros_like(next(iter(masked.values())))
    for vector in masked.values():
        total = add(total, vector)
    for u in by_number:
        parts = [(v, shares[u]) for v, shares in revealed.items()]
        if u in survivors:
            total = subtract(total, mask(Shamir.combine(parts, ssss=False), total.size))
            continue
        secret = b"".join(Shamir.combine([(v, s[i : i + 16]) for v, s in parts], ssss=False) for i in (0, 16))
        key = X25519PrivateKey.from_private_bytes(secret)
        for v in survivors:  # a survivor added the mask if its number is the lower one
            pairwise = mask(agree(key, keys[v][1]), total.size)
            total = subtract(total, pairwise) if v < u else add(total, pairwise)
    return Transcript(masked, total)


def plain_sum(updates: Sequence[Update], encoding: FixedPoint | None = None) -> Update:
    """Sum updates in the clear: what secure aggregation gives the server, at no cost.

    Parameters
    ----------
    updates
        The clients' gradients of one step, of the same parameters.
    encoding
        Round as the protocol does (the same result bit by bit, float64), or not at all.

    Raises
    ------
    ValueError
        If the updates do not go together.
    """
    names = _together(updates)
    if encoding is None:
        return _aggregate(updates, {name: sum(u.tensors[name] for u in updates) for name in names})  # type: ignore[misc]
    encoding.check(len(updates))
    total = _flat(updates[0], names, encoding)
    for update in updates[1:]:
        total = add(total, _flat(update, names, encoding))
    return _aggregate(updates, _shaped(encoding.decode(total), updates[0], names))


def secure_sum(
    updates: Sequence[Update],
    encoding: FixedPoint,
    *,
    threshold: int | None = None,
    dropped: Collection[int] = (),
    entropy: Entropy = os.urandom,
) -> tuple[Update, Transcript]:
    """Sum updates by the protocol.

    Parameters
    ----------
    updates
        The clients' gradients of one step, of the same parameters; client numbers are 1 … U in this order.
    encoding
        How real numbers become field elements.
    threshold
        Clients needed to remove the masks, by default two thirds, rounded up.
    dropped
        Numbers of the clients that drop out after sharing their keys.
    entropy
        Source of the clients' secrets; the sum does not depend on it.

    Returns
    -------
    aggregate : Update
        Sum of the survivors' updates, float64, exact to the encoding.
    transcript : Transcript
        What the server saw.

    Raises
    ------
    ValueError
        If the updates do not go together, the sum does not fit the field, or too few clients are left.
    """
    names = _together(updates)
    encoding.check(len(updates))
    if stranger := set(dropped) - set(range(1, len(updates) + 1)):
        raise ValueError(f"clients are numbered 1 to {len(updates)}; there is no {sorted(stranger)} to drop out")
    clients = [Party(u + 1, _flat(update, names, encoding), entropy) for u, update in enumerate(updates)]
    done = run_protocol(clients, threshold or max(2, -(-2 * len(clients) // 3)), dropped)
    left = [update for u, update in enumerate(updates) if u + 1 not in set(dropped)]
    return _aggregate(left, _shaped(encoding.decode(done.total), updates[0], names)), done


def _together(updates: Sequence[Update]) -> list[str]:
    if len(updates) < 2:
        raise ValueError(f"aggregation hides a client among others: at least two, got {len(updates)}")
    first = updates[0]
    for update in updates:
        if update.kind != "gradient" or update.steps != 1:
            raise ValueError("aggregated here are gradients of one step (FedSGD), not deltas or several steps")
        shapes = [{k: t.shape for k, t in u.tensors.items()} for u in (first, update)]
        if shapes[0] != shapes[1]:
            raise ValueError("the updates are of different parameters or shapes")
    return list(first.tensors)


def _flat(update: Update, names: list[str], encoding: FixedPoint) -> np.ndarray:
    return encoding.encode(torch.cat([update.tensors[n].detach().flatten() for n in names]).cpu().numpy())


def _shaped(values: np.ndarray, like: Update, names: list[str]) -> dict[str, Tensor]:
    pieces = torch.from_numpy(values).split([like.tensors[n].numel() for n in names])
    theirs = [like.tensors[n] for n in names]
    return {n: piece.view(t.shape).to(t.device) for n, piece, t in zip(names, pieces, theirs, strict=True)}


def _aggregate(updates: Sequence[Update], tensors: Mapping[str, Tensor]) -> Update:
    return Update(tensors, "gradient", sum(u.samples for u in updates))
