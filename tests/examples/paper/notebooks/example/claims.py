"""The example: what the paper says in words, as a statistic of rows, by the id in ``claims.toml``."""

from fedleak_book.evidence.claims import Claims

CLAIMS = Claims()
CLAIMS.add(
    "ahead", lambda t: (t["LLG"] - t["random guess"]).min(), "table1", wide="rule"
)
