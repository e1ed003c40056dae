"""RLU: the server's own images, and Table 4, schemes other than FedAvg."""

import torch

from fedleak_book.experiments import Experiment
from fedleak.data.partitions import dirichlet, local_batches
from fedleak.federated import Scheme, Server
from fedleak.models import head
from notebooks.rlu.clients import (
    AUX,
    CLIENTS,
    IACC,
    LR,
    ROUND,
    RULED,
    count_labels,
    round_facts,
    prepare_rules,
    accuracies,
    sample_server,
    split_images,
)


def scheme(*given):
    """Return a scheme with its parameters as settings."""
    return dict(zip(("name", "level", "momentum", "regularisation"), given))


MILD = [scheme("fedprox", "mild", 0.0, 0.1), scheme("sgdm", "mild", 0.1, 0.0)]
STRONG = [scheme("fedprox", "strong", 0.0, 5.0), scheme("sgdm", "strong", 0.9, 0.0)]
DRIFT = [scheme("scaffold", "", 0.0, 0.0), scheme("feddc", "", 0.0, 1.0)]
OTHER = [
    scheme("fedavg", "", 0.0, 0.0),
    scheme("nag", "", 0.9, 0.0),
    scheme("feddyn", "", 0.0, 1.0),
]


def run_on(schemes, rounds, data):
    """Return settings of some schemes."""
    return [dict(s, data=d, rounds=rounds) for d in data for s in schemes]


def schemes(ctx, seed, data, name, level, momentum, regularisation, rounds):
    """Score every rule, and RLU uninformed of the scheme, in the last of some rounds."""
    (pool, test), generator = (
        split_images(ctx, data),
        torch.Generator().manual_seed(seed),
    )
    model = ctx.build("lenet", pool.shape, pool.n_classes, seed=seed)
    server = Server(model, Scheme(name, LR, 10, momentum, regularisation), CLIENTS)
    parts, aux = dirichlet(pool.y, CLIENTS, 0.5, seed), sample_server(test, AUX, seed)
    for _ in range(rounds):
        index = [local_batches(part, 10, 32, generator) for part in parts]
        sent = {k: v.clone() for k, v in model.state_dict().items()}
        updates = server.round([pool.x[i] for i in index], [pool.y[i] for i in index])
    model.load_state_dict(sent)  # the model that the last round's updates started from
    read = prepare_rules(model, aux)
    for k, (update, i) in enumerate(zip(updates, index)):
        history = server.history(k, head(model).bias)
        answers = read(update, scheme=server.scheme, history=history)
        answers["RLU, ρ = 1"] = read(update)["RLU"]
        for rule, n in answers.items():
            iacc = accuracies(n, count_labels(pool.y[i], pool.n_classes))["iacc"]
            algorithm = "1" if rule.startswith("RLU") else ""
            real = round_facts(pool, parts, aux)
            yield {"rule": rule, "algorithm": algorithm, "iacc": iacc, **real}


TABLE4 = Experiment(
    "table4",
    schemes,
    quick=run_on(STRONG, 1, ["mnist5k"]) + run_on(DRIFT, 3, ["mnist5k"]),
    paper=run_on(MILD + STRONG, 1, ["mnist", "svhn", "cifar10"])
    + run_on(STRONG + DRIFT + OTHER, 3, ["mnist"]),
    trials=(1, 3),
    fixed=dict(net="lenet", batch_size=32, steps=10, alpha=0.5, stage=0) | ROUND,
    **RULED | dict(values=IACC),
)
