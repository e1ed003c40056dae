"""What a notebook declares: its experiments, their records, the papers' numbers and the statuses between them."""

from fedleak.experiments.chapter import Chapter
from fedleak.experiments.experiment import NOW, RECORDED, Experiment
from fedleak.experiments.records import summarise
from fedleak.experiments.show import show
from fedleak.experiments.sweep import grid, seeds_of, sweep
from fedleak.experiments.weights import trained_once

__all__ = ["NOW", "RECORDED", "Chapter", "Experiment", "grid", "seeds_of", "show", "summarise", "sweep", "trained_once"]
