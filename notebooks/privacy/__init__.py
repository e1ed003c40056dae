"""The page on differential privacy: canaries and labels under its mechanisms; their records are among the arena's."""
