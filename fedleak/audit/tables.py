"""The findings of an audit, and tables of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import pandas as pd
from torch import Tensor, nn

from fedleak.attacks.contest import EXPECTED_FAILURES
from fedleak.attacks.registry import ADVERSARIES, WHITE_BOX, get
from fedleak.attacks.words import used_rows, word_embeddings
from fedleak.audit.canary import PrivacyResult
from fedleak.federated import Update
from fedleak.intervals import MIN_VALUES, UNBOUNDED, interval
from fedleak.models.inputs import has_integer_inputs, input_embeddings
from fedleak.privacy.spending import Spent

AS_IT_IS = "as it is"


class Verdict(NamedTuple):
    """The verdict on one round, one update, the words, or the ε of a client."""

    case: str
    status: Literal["kept", "leak", "not measurable"]
    why: str
    """The reason, with the attack and its adversary."""
    seconds: float = 0.0


class ImageResult(NamedTuple):
    """The quality of one inversion of one update."""

    attack: str
    why: str = ""
    """Why there is no result, if there is none."""
    iterations: int = 0
    psnr: float = float("nan")
    """Mean peak signal-to-noise ratio in dB, of the reconstructions in the best order."""
    guess: float = float("nan")
    """The same, of as many other samples of the same data."""

    def text(self) -> str:
        """Return the result as a sentence."""
        if self.why:
            return f"{self.attack} was not run ({self.why})"
        came = f"{self.attack} reached {self.psnr:.1f} dB PSNR in {self.iterations} iterations (one update)"
        return f"{came}; other samples of the same data are at {self.guess:.1f} dB"


class WordsResult(NamedTuple):
    """The words of the clients' texts that updates reveal."""

    why: str = ""
    """Why the `unread` updates have no result."""
    named: int = 0
    """Number of words that the attack recovers, distinct per update."""
    right: int | None = None
    """Number of these that occur; None for a recorded run, which has no texts to compare with."""
    of: int = 0
    """Number of words that occur, distinct per update."""
    updates: int = 0
    """Number of updates whose words are counted."""
    unread: int = 0

    @property
    def share(self) -> float:
        """Words that are both recovered and present, as a share of those that are either."""
        return float(self.named > 0) if self.right is None else self.right / max(self.named + self.of - self.right, 1)

    def text(self) -> str:
        """Return the result as a sentence."""
        if not self.updates:
            return f"the rows of the embedding do not reveal them ({self.why})"
        many = f"the embedding rows that change reveal {self.named} words, distinct per update ({self.updates} updates)"
        if self.right is None:
            many += "; no texts were recorded for comparison"
        else:
            many += f": {self.right} of the {self.of} that occur, and {self.named - self.right} that do not"
        return many + f"; {self.unread} updates more do not reveal theirs ({self.why})" * bool(self.unread)


@dataclass
class Tables:
    """What an audit found on a set-up or a recorded run; see `fedleak.audit.Report`.

    Parameters
    ----------
    facts
        The set-up, or the run, by the names that the template of the report has.
    rows
        One row a recovery, tidy: ``scenario`` (as it is, or with a remedy), ``attack``, ``trial``, ``iacc``, ``cacc``,
        ``exact``, ``seconds``; for attacks with intervals also ``held``, the share of the counts in them,
        and ``width``, their mean width in samples; for those that prove labels the number ``proven``.
    scenarios
        The set-up as it is, and every remedy.
    left_out
        Remedies that cannot be put on this set-up, and why.
    adversaries
        Attack to the weakest of the registry's adversaries that can run it as it was run here.
    untried
        Attacks that were not run, and why.
    remarks
        Remarks on attacks that worked: failures in some of the trials, and violated assumptions.
    images
        One image inversion, if it was asked for.
    words
        Words that the embedding of a model with token inputs reveals.
    privacy
        The claims of differential privacy, and what a canary shows of them.
    spent
        ε of each client over its rounds in a recorded run, the largest first.
    unscored
        Updates without a score, of an attack or a guess: ``trial``, or ``round`` and ``node``, and ``why``.
    verdicts
        Verdicts of `fedleak.audit.guard`, if there are limits.
    baseline
        An earlier report's JSON, read, to compare with.
    broken
        Attacks that failed on more than half of the updates by an error of their own, and the error.
    """

    facts: dict[str, Any]
    rows: pd.DataFrame
    scenarios: Sequence[str]
    left_out: Sequence[tuple[str, str]]
    adversaries: dict[str, str]
    untried: Sequence[tuple[str, str]]
    remarks: dict[str, str]
    images: ImageResult | None = None
    words: WordsResult | None = None
    privacy: Sequence[PrivacyResult] = ()
    spent: Sequence[Spent] = ()
    unscored: Sequence[dict[str, Any]] = ()
    verdicts: Sequence[Verdict] = ()
    baseline: dict[str, Any] | None = None
    broken: dict[str, str] = field(default_factory=dict)

    @cached_property
    def guesses(self) -> list[str]:
        """The attacks that see nothing of an update: the floor for all others."""
        return [name for name in dict.fromkeys(self.rows["attack"]) if name not in self.adversaries]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row an attack, best first by the mean (those with few of the trials last), then the untried.

        Columns: ``attack``, ``adversary`` (the weakest that can run it), ``applies``, ``why`` (not, or remarks), means
        ``iacc``, ``cacc``, ``exact`` with 95 % intervals (``iacc_low`` …; over the means of three recorded clients or
        more, else over updates), ``n`` updates, ``seconds`` a recovery
        (median) and ``first_seconds`` (with what is computed once for a model), ``guess`` (instance accuracy of the
        best guess on the same updates), and ``leaks``: better than it, by the interval of the paired difference.
        """
        scored = self._ranked.query("scenario == @AS_IT_IS").drop(columns="scenario")
        missing = [{"attack": name, "applies": False, "why": why, "n": 0, "leaks": False} for name, why in self.untried]
        return pd.DataFrame([*scored.to_dict("records"), *missing])

    @cached_property
    def remedies(self) -> pd.DataFrame:
        """One row a remedy (and one for the set-up as it is): the best attack that is left, as in `table`, or none."""
        attacks = self._ranked[~self._ranked["attack"].isin(self.guesses)]
        best = {row["scenario"]: row for row in attacks.drop_duplicates("scenario").to_dict("records")}
        none = {"attack": "none applies", "applies": False, "n": 0}
        rows = [{"remedy": scenario, **best.get(scenario, none)} for scenario in self.scenarios]
        return pd.DataFrame(rows).reindex(columns=["remedy", *self.table.columns])

    @cached_property
    def _ranked(self) -> pd.DataFrame:
        """One row per scenario and attack, as in `table`, the best of a scenario first."""
        floors = self.as_it_is.pivot(index="trial", columns="attack", values="iacc")[self.guesses]
        parts = self.rows.groupby(["scenario", "attack"], sort=False)
        means = pd.DataFrame(
            [self._row(scenario, attack, part.set_index("trial"), floors) for (scenario, attack), part in parts]
        )
        few = 2 * means["n"] < means.groupby("scenario")["n"].transform("max")
        order = means.assign(few=few, iacc=means["iacc"].round(6)).sort_values(
            ["few", "iacc", "exact", "cacc"], ascending=[True, False, False, False]
        )
        return means.loc[order.index]

    def _row(self, scenario: str, attack: str, part: pd.DataFrame, floors: pd.DataFrame) -> dict[str, Any]:
        about = {"adversary": self.adversaries.get(attack, "–"), "why": self.remarks.get(attack, "")}
        row: dict[str, Any] = {"scenario": scenario, "attack": attack, "applies": True, **about, "n": len(part)}
        several = "node" in part and part["node"].nunique() >= MIN_VALUES
        unit = part["node"] if several else part.index  # one client's updates are not independent
        for metric in ("iacc", "cacc", "exact"):
            low, high = interval(part.groupby(unit, sort=False)[metric].mean().to_numpy())
            row |= {metric: part[metric].mean(), f"{metric}_low": low, f"{metric}_high": high}
        row |= {"seconds": part["seconds"].median(), "first_seconds": part["seconds"].iloc[0]}
        floors = floors.reindex(part.index)
        floor = floors[floors.mean().idxmax()]
        lead = part["iacc"] - floor
        by = [lead.groupby(u, sort=False).mean().to_numpy() for u in (unit, part.index)]
        # NaN: too few, or all equal, for which the bounds of a difference give an interval
        gains = [interval(values, bounds)[0] for bounds in (UNBOUNDED, (-1.0, 1.0)) for values in by]
        gain = next((low for low in gains if not math.isnan(low)), math.nan)
        return {**row, "guess": floor.mean(), "leaks": bool(gain > 0) and attack not in self.guesses}

    @property
    def wrong(self) -> list[str]:
        """Errors of the claims of differential privacy."""
        return [why for claim in self.privacy for why in claim.wrong()]

    def sure(self) -> pd.DataFrame:
        """Return the means of ``held`` and ``width``, a row an attack that gives intervals."""
        return self.rows.reindex(columns=["attack", "held", "width"]).groupby("attack").mean().dropna()

    def proven(self) -> pd.Series:
        """Return how many labels of an update are proven, the mean over its updates as they are, by attack."""
        means = self.as_it_is.reindex(columns=["attack", "proven"]).groupby("attack")["proven"].mean()
        return means[means > 0]

    @property
    def as_it_is(self) -> pd.DataFrame:
        """The rows without a remedy."""
        return self.rows[self.rows["scenario"] == AS_IT_IS]

    @property
    def measured(self) -> bool:
        """Whether any attack that sees something of an update could be scored."""
        return not self.rows.empty and bool(self.ranking())

    def ranking(self) -> list[str]:
        """Name the attacks that were run, best first; guesses are none."""
        return [name for name in self.table.query("applies")["attack"] if name not in self.guesses]

    def by_adversary(self) -> list[tuple[str, pd.Series]]:
        """Return, from the weakest adversary up, who gets further than all before, and by which attack."""
        place = {adversary.name: k for k, adversary in enumerate(ADVERSARIES)}
        best = self.table.query("leaks").drop_duplicates("adversary")
        best = best.sort_values("adversary", key=lambda names: names.map(place).fillna(len(place)))
        best = best[best["iacc"] > best["iacc"].cummax().shift(fill_value=-1.0)]
        return [(row["adversary"], row) for _, row in best.iterrows()]

    def compared(self) -> list[tuple[str, float | None, float | None]]:
        """Return every attack's instance accuracy in the `baseline`, and now; None where it was not run."""
        earlier = self.baseline["attacks"] if self.baseline else []
        then = {row["attack"]: row["iacc"] for row in earlier if row["applies"]}
        now = dict(self.table.query("applies")[["attack", "iacc"]].to_numpy())
        return [(name, then.get(name), now.get(name)) for name in now | then]


def count_words(
    so_far: WordsResult | None, update: Update, model: nn.Module, texts: Tensor | None = None
) -> WordsResult | None:
    """Count the words that one more update names, and where there are texts, those of them; None without tokens."""
    if not (input_embeddings(model) or has_integer_inputs(model)):
        return so_far
    so_far, names = so_far or WordsResult(), word_embeddings(model, update)
    try:
        if not names:
            raise ValueError("no nn.Embedding that takes the inputs is trained and shared")
        words = set(get("embedding rows")(update, model, adversary=WHITE_BOX).tolist())
        if not words:
            raise ValueError("no row of the embedding moves: it is frozen")
    except EXPECTED_FAILURES as error:
        return so_far._replace(why=str(error), unread=so_far.unread + 1)
    so_far = so_far._replace(named=so_far.named + len(words), updates=so_far.updates + 1)
    if texts is None:
        return so_far
    truth = used_rows(model, names, texts.flatten(0, 2))
    return so_far._replace(right=(so_far.right or 0) + len(words & truth), of=so_far.of + len(truth))
