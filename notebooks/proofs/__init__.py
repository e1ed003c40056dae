"""The page on audits: proven labels; their records are among the arena's."""
