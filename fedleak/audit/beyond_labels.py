"""Leakage besides labels: images, by one inversion, and the words of texts."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from fedleak.attacks.contest import EXPECTED_FAILURES, contest, view
from fedleak.attacks.registry import WHITE_BOX, Attack, get
from fedleak.attacks.words import used_rows, word_embeddings
from fedleak.audit.case import Case, Trial, image_attack
from fedleak.audit.findings import ImageResult, WordsResult
from fedleak.federated import Update
from fedleak.metrics import paired, psnr
from fedleak.models.inputs import input_embeddings


def invert_once(case: Case, done: Trial, update: Update, ranking: Iterable[Attack]) -> ImageResult:
    """Invert the first trial's update; labels are those that are recovered, by the best of `ranking` that can."""
    attack, adversary = image_attack(case.setup), view(case.setup.attacker, update, case.model)
    truth = done.x[0].flatten(0, 1)
    try:
        if truth.dim() != 4 or min(truth.shape[2:]) < 11:
            raise ValueError(f"it is for images of at least 11 x 11 pixels, and the inputs are of shape {case.shape}")
        if truth.min() < 0 or truth.max() > 1:
            raise ValueError("it looks for pixels in [0, 1]; the data are not, so put the normalisation into the model")
        if case.setup.epochs > 1:
            raise ValueError("it takes the samples of every step for new ones, and several epochs have the same again")
        if lacks := attack.lacking(adversary):
            raise ValueError(f"the adversary lacks: {'; '.join(lacks)}")
        attempts = contest(update, case.attacked, adversary, {**case.knowledge, "runs": 1}, attacks=ranking)
        answers = (attempt.counts for attempt in attempts)
        counts = next((c for c in answers if c is not None and c.sum() == update.samples), None)
        if counts is None:
            raise ValueError("it needs the labels first, and no label attack names as many as there are samples")
        options = {"labels": torch.arange(len(counts)).repeat_interleave(counts), "seed": case.setup.seed}
        reconstructions = attack(update, case.attacked, adversary=adversary, iterations=case.setup.images, **options)
    except EXPECTED_FAILURES as error:
        return ImageResult(attack.name, str(error).strip().split("\n")[0])
    generator = torch.Generator().manual_seed(case.setup.seed)
    others = case.aux.x[torch.randint(len(case.aux), (len(truth),), generator=generator)].to(truth)
    near, guess = (float(psnr(paired(images.to(truth), truth), truth).mean()) for images in (reconstructions, others))
    return ImageResult(attack.name, "", case.setup.images, near, guess)


def count_words(
    so_far: WordsResult | None, update: Update, model: nn.Module, texts: Tensor | None = None
) -> WordsResult | None:
    """Count the words that one more update names, and where there are texts, those of them; None without tokens."""
    has_tokens = texts is not None and not texts.is_floating_point()
    if not (has_tokens or input_embeddings(model)):
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
