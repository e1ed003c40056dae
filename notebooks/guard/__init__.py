"""The page on inspecting models on the client; its record is among the arena's."""
