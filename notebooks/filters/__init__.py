"""The page on NVFlare: its privacy filters as defences; their records are among the arena's."""
