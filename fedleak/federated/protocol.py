"""Secure aggregation after Bonawitz et al. (CCS 2017).

The server learns the sum of the clients' updates and nothing about a single one: each client adds masks, integers
modulo 2^64, one shared with every other client (they cancel in the sum) and one of its own. With secret shares of the
seeds the server subtracts the remaining masks when clients drop out. Keys, key derivation, key stream and
encryption are from `cryptography`, Shamir's sharing from `pycryptodome`; numpy's uint64 adds modulo 2^64.

What is left out is the authentication that Bonawitz et al. add against a server that cheats in THIS protocol (signed
keys and the consistency check): LIA-SA's server keeps to it, and cheats with the model that it sends.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedleak.errors import extra

with extra("book"):
    from Crypto.Protocol.SecretSharing import Shamir
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

Entropy = Callable[[int], bytes]
"""``entropy(n)``: n random bytes."""


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
        """Round 3: return a share of each survivor's own seed and of each dropped client's mask key, never both."""
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
    """The server's knowledge after a run of the protocol."""

    masked: dict[int, np.ndarray]
    """Client number to the masked vector that it sent, uint64 ``[d]``: all that it sees of one client."""
    total: np.ndarray
    """Sum of the survivors' vectors, uint64 ``[d]``."""


def run_protocol(clients: Sequence[Party], threshold: int, dropped: Collection[int] = ()) -> Transcript:
    """Run the server's side; the clients numbered in `dropped` leave after they have shared their keys.

    Raises `ValueError` if `threshold` is not between 2 and the number of clients, or fewer clients than that survive.
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
