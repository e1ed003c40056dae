"""What is recorded, what the papers print, how the two stand to each other, and how pages show it."""

from fedleak.experiments.show import show

__all__ = ["show"]
