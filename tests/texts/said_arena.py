"""The arena: what the text says in numbers."""

import pandas as pd
from saying import (
    FLOORS,
    TOLD,
    WHOLE,
    best,
    by_network,
    deep_cells,
    halves,
    leads,
    listed,
    minus,
    of,
    rows,
    what_noise_costs,
)

from fedleak.intervals import NUMBER, interval


@of("arena")
def noise_in_the_chapter_on_llg():
    sgd, avg = what_noise_costs()
    yield f"loses {sgd} under FedSGD and {avg} under FedAvg"


DEEP = ("vgg", "resnet", "vgg_trained", "resnet_trained")


def contested(tables, by):
    """The best attack and the prior guess in every cell."""
    table = pd.concat([rows("arena", name) for name in tables])
    table = table[~table["attack"].str.endswith(", told")]
    prior = table[table["attack"] == "prior guess"].groupby(by)["iacc"].mean()
    return pd.DataFrame({"best": table.groupby(by)[["trial", "attack", "iacc"]].apply(best), "prior": prior})


@of("arena")
def leads_over_the_prior_guess():
    found = contested(["compositions"], ["state", "composition"]).loc["trained"].round(4)
    lead = found["best"] - found["prior"]
    even, equal, sub = (found.loc[name] for name in ("balanced", "permuted", "subclassed"))
    yield f"({even['best']:.2f} against {even['prior']:.2f} for balanced batches"
    yield f"{equal['best']:.2f} for both for permuted ones)"
    assert abs(lead[["permuted", "balanced"]]).max() < 0.015
    yield f"ahead by {lead['subclassed']:.2f} where half of the classes are missing, by {lead['unbalanced']:.2f} for"
    yield f"by {lead['single']:.2f} for batches of a single class"
    yield f"the mean over the splits is {sub['best']:.2f}.)"


@of("arena")
def what_is_left_after_training():
    found = contested(["models", *DEEP], ["state", "net", "batch_size"])
    lead = (found["best"] - found["prior"]).unstack("state")
    kept = (100 * lead["trained"] / lead["untrained"]).groupby("net").agg(["min", "max"])
    share = {net: f"{low:.0f} to {high:.0f} %" for net, low, high in kept.itertuples()}
    yield f"keeps {share['lenet']} of its lead over that guess on trained LeNets, {share['resnet18']} on ResNet-18"
    yield f"{share['resnet18']} on ResNet-18 and {share['vgg11_bn']} on VGG-11"
    right = (100 * rows("arena", "trained").groupby("network")["accuracy"].mean()).map("{:.0f}".format)
    yield f"LeNets that are right about {right['lenet']} %"
    yield f"VGG-11 and ResNet-18 that are right about {right['vgg11_bn']} and {right['resnet18']} %"


@of("arena")
def the_learned_attacker():
    table = rows("arena", "models").query("state == 'trained'").drop(columns="state")
    answered = table.groupby(["batch_size", "attack"])["iacc"].agg(lambda each: each.mean(skipna=False)).unstack()
    ahead = answered["learned"] - answered.drop(columns=[*FLOORS, "learned"]).max(axis=1)
    leads = minus(listed(ahead, "{:+.2f}"))
    yield f"its leads in batches of 8, 32, 128 and 512 are {leads}"
    yield f"its leads over the best other attack are {leads}"
    for size in ahead.index:
        wide = table[table["batch_size"] == size].pivot(index="trial", columns="attack", values="iacc")
        other = answered.loc[size].drop([*FLOORS, "learned"]).idxmax()
        low, high = interval(by_network(wide["learned"] - wide[other]), NUMBER)
        assert low < 0 < high
    assert (ahead > 0).sum() == 1
    assert ahead.min() > -0.03
    even = rows("arena", "compositions").query("state == 'trained' and composition == 'balanced'")
    even = even.groupby("attack")["iacc"].mean()
    yield f"of balanced batches of 32 it finds {even['learned']:.2f}, the prior guess {even['prior guess']:.2f}"


@of("arena")
def the_learned_attacker_on_deep_networks():
    found = deep_cells()
    lead, over = found["learned"] - found["best"], found["learned"] - found["whole"]
    table = pd.concat([rows("arena", name) for name in ("vgg_trained", "resnet_trained")])
    wide = table.pivot(index=["net", "batch_size", "trial"], columns="attack", values="iacc")
    clear, behind = [], []
    for cell, which in found["which"].items():
        ours = wide.loc[cell]["learned"]
        clear += [cell] if interval(by_network(ours - wide.loc[cell][which]), NUMBER)[0] > 0 else []
        behind += [cell] if interval(by_network(ours - wide.loc[cell][WHOLE]), NUMBER)[1] < 0 else []
    assert clear == [("resnet18", 128)]
    assert behind == [("resnet18", 32), ("resnet18", 128)]
    for net in ("vgg11_bn", "resnet18"):
        yield f"it finds {listed(found['learned'][net])} of the labels"
        yield minus(f"{listed(lead[net], '{:+.2f}')} over the best published attack and {listed(over[net], '{:+.2f}')}")


@of("arena")
def who_is_told_the_training_loss():
    found = deep_cells()
    lead = found["told"] - found["best"]
    gain = (found["told"] - found["learned"]).groupby("net").mean()
    told = found["told"]
    yield f"who is told finds {listed(told['resnet18'])} on ResNet-18 and {listed(told['vgg11_bn'])} on VGG-11"
    ahead = ((found["learned"] - found["best"]) >= 0.05).sum(), (lead >= 0.05).sum()
    count = {4: "four", 5: "five"}[ahead[0]]
    yield f"of the best published attack by 0.05 in {count} of eight cells"
    large = (found["learned"] - found["whole"])["vgg11_bn"].drop(8)
    assert abs(large).max() < 0.012
    yield "ahead by at least 0.05 in {} of the eight cells not told, and in {} told".format(*ahead)
    missed = found[found["learned"] - found["best"] < 0.05]["which"]
    assert missed.to_dict() == {("vgg11_bn", 8): "SPEAR"} | {("resnet18", size): "Decaf" for size in (8, 32, 512)}
    behind = (found["learned"] < found["best"]).sum()
    yield f"in {count} of eight cells, and behind it in {({3: 'three'})[behind]}"
    by = [minus(f"{gain[net]:+.2f}") for net in ("resnet18", "vgg11_bn")]
    yield f"changes what it finds by {by[0]} on ResNet-18 and by {by[1]} on VGG-11"
    yield minus(f"the least of its leads over the whole head is {(found['learned'] - found['whole']).min():+.3f}")


@of("arena")
def exact_splitting():
    table = rows("arena", "models").query("batch_size == 8").set_index(["state", "trial", "attack"])["iacc"].unstack()
    read = table["SPEAR"].dropna()
    assert (read == 1).all()
    yield f"of 20 updates of 8 it reads {read.loc['trained'].size} from a trained LeNet, and refuses the others"
    yield f"reads {read.loc['untrained'].size} of 20 from an untrained one"
    trained = table.loc["trained"]
    both = trained["SPEAR"].fillna(trained["learned"]).mean()
    yield f"the learned attacker's elsewhere, is right about {both:.2f} of the labels"
    yield f"where the learned attacker alone finds {trained['learned'].mean():.2f}"


@of("arena")
def little_is_needed():
    table = pd.concat([rows("arena", name) for name in ("models", *DEEP)])
    refused = table["iacc"].isna().groupby([table[c] for c in ("state", "net", "batch_size", "attack")])
    table = table[~refused.transform("any")]
    mean = table.groupby(["state", "net", "batch_size", "attack"])["iacc"].mean().unstack().round(9)
    trained = mean.loc["trained"]
    behind = trained.max(axis=1) - trained["LLG"]
    deep = behind.drop("lenet")[trained.drop("lenet").idxmax(axis=1) != "SPEAR"]
    yield f"is {deep.min():.2f} to {deep.max():.2f} behind the best attack in those cells of trained deep networks"
    yield f"it is at most {behind['lenet'].max():.2f} behind the best"
    over = (mean["ZLG"] - mean["prior guess"]).drop(("untrained", "lenet"))
    yield f"leaves it at most {over.max():.2f} above the prior guess"


@of("arena")
def soft_labels():
    found = contested(["softened"], ["state", "labelling", "batch_size"])
    best, prior = found["best"].loc["trained"], found["prior"].loc["trained", "one-hot"]
    table = rows("arena", "softened").query("state == 'trained'")
    mean = table.groupby(["attack", "labelling", "batch_size"])["iacc"].mean()
    two = "{:.2f} and {:.2f}".format
    hard, smooth, mixed = ("one-hot", "smoothed by 0.1", "mixup, α = 1")
    yield f"finds {best[hard, 8]:.2f} at B = 8 and {best[hard, 32]:.2f} at 32, of smoothed ones {two(*best[smooth])}"
    yield f"where the prior guess is at {two(*prior)}"
    each = table.set_index(["attack", "labelling", "batch_size", "trial"])["iacc"].sort_index()
    for name in ("RLU", "RLU, whole head"):
        told, hard_ones = (each[who, how].unstack(0) for who, how in ((f"{name}, told", smooth), (name, hard)))
        assert max(told.mean()) < 0.95, "S4 fails"
        gains = [by_network(gap) for _, gap in (told - hard_ones).items()]
        assert all((gain > 0).all() for gain in gains)
        assert [interval(gain, NUMBER)[0] > 0 for gain in gains] == [False, True]
        yield "{} and {}".format(*(leads(gain, "", ".2f") for gain in gains))
        if name == "RLU":
            yield "RLU finds {:.2f} at B = 8 and {:.2f} at 32".format(*told.mean())
            yield f"they find {two(*hard_ones.mean())}, and"
        else:
            yield f"its extension to the whole head {two(*told.mean())}"
            yield f"and {two(*hard_ones.mean())}; over"
    ours = mean["learned"]
    yield f"RLU finds {mean['RLU', smooth, 32]:.2f} and the learned attacker {ours[smooth, 32]:.2f}, where"
    yield f"where it found {ours[hard, 32]:.2f}"
    yield f"LLG finds {two(*mean['LLG', mixed])} of mixed labels, after {two(*mean['LLG', hard])} of one-hot ones"
    yield f"RLU {two(*mean['RLU', mixed])} after {two(*mean['RLU', hard])}"
    whole = two(*mean["RLU, whole head", mixed])
    yield f"falls below the guess, to {whole}, and so does the learned attacker, to {two(*ours[mixed])}"
    yield f"The best attack goes to {two(*best[mixed])}"
    split = rows("arena", "softened").query("batch_size == 8 and attack == 'SPEAR'")
    split = split.groupby(["state", "labelling"])["iacc"].count()
    one = f"it splits {split['trained', mixed]} of 20 mixed batches of 8, where it splits {split['trained', hard]}"
    yield f"{one} of one"
    assert split["trained", smooth] == 0
    yield f"it splits {split['untrained', smooth]} of 20 smoothed ones and {split['untrained', hard]} of one-hot ones"
    yield f"at least {found['best'].loc['untrained'].min():.2f} in every cell"
    assert (best[smooth] <= prior + 0.1).all()
    assert best[hard, 8] - best[mixed, 8] > 0.05 > best[hard, 32] - best[mixed, 32]


@of("arena")
def what_knowledge_is_worth():
    table = rows("arena", "ladder").query("rung in ('gradients', '+ model', '+ many images a class')")
    found = table.groupby(["state", "rung"])[["trial", "attack", "iacc"]].apply(best)
    gradients, most = (found[:, rung] for rung in ("gradients", "+ many images a class"))
    yield f"from {gradients['untrained']:.2f} with the gradients alone to {most['untrained']:.2f} with the model"
    assert round(found["untrained", "+ model"], 2) == 1
    both = f"{gradients['trained']:.2f} with the gradients alone and {most['trained']:.2f} with the model and 500"
    yield both
    top = table.query("state == 'trained' and rung == '+ many images a class'")
    wide = top.pivot(index="trial", columns="attack", values="iacc")
    lead = by_network(wide["learned"] - wide["LLG"])
    yield minus("lead over it is {:+.2f} [{:+.2f}, {:+.2f}]".format(lead.mean(), *interval(lead, NUMBER)))


@of("arena")
def secure_aggregation():
    bare = contested(["defences"], ["defence", "state", "strength"])["best"]["none"].droplevel("strength")
    sums = rows("arena", "aggregation").query("attack not in ('LIA-SA', 'EludingSA', 'MANDRAKE')")
    summed = sums.groupby("state")[["trial", "attack", "iacc"]].apply(best)
    taken = (bare - summed).map("{:.2f}".format)
    yield f"{taken['untrained']} of the labels on an untrained LeNet, {taken['trained']} on a trained one"
    waited = rows("arena", "waiting").query("attack != 'prior guess'")
    late = waited.query("state == 'trained'").groupby("rounds")[["trial", "attack", "iacc"]].apply(best)
    waiting = waited.groupby(["state", "rounds", "attack"])["iacc"].mean()
    yield f"finds {late[40]:.2f} of the labels after 40 rounds and {late[160]:.2f} after 160"
    yield f"with patience more than the {bare['trained']:.2f} that it finds in one update in the clear"
    llg, plus = (waiting["untrained"].xs(name, level="attack") for name in ("LLG", "LLG+"))
    assert waiting["untrained", 40, "RLU"] > 0.9995
    low, high = llg.loc[40:].min(), llg.loc[40:].max()
    yield f"LLG stays at {low:.2f} to {high:.2f}, and LLG+ loses {plus[40] - plus[160]:.2f}"


@of("arena")
def training_mode():
    found = contested(["modes"], ["state", "net", "client", "attacker"])["best"]
    yield "the best attack finds at least 0.99 of the labels in every setting"
    assert (found["untrained"] >= 0.99).all()
    cells = rows("arena", "modes").query("attack == 'LLG'").groupby(["state", "net", "client", "attacker"])
    assert (cells["trial"].nunique() == 20).all()
    drop, norm = (found["trained", f"lenet with {layer}"] for layer in ("dropout", "batch norm"))
    before, after = drop["evaluation", "evaluation"], drop["training", "evaluation"]
    yield f"dropout takes it from {before:.2f} to {after:.2f}"
    assert before - after <= 0.05
    before, one, two = norm["evaluation", "evaluation"], norm["training", "evaluation"], norm["training", "training"]
    yield f"takes it from {before:.2f} to {one:.2f} where the attacker passes its images in evaluation mode"
    yield f"and to {two:.2f} where it passes them in training mode"
    assert before - max(one, two) <= 0.1


@of("arena")
def noise():
    trained = rows("arena", "utility").pivot(index="trial", columns=["defence", "strength"], values="accuracy")
    bare, noisy = trained["none", 0.0], trained["noise"]
    assert len(trained) == 10
    yield f"Without a defence they end at {bare.min():.2f} to {bare.max():.2f}, nine of them above 0.87"
    assert (bare > 0.87).sum() == 9
    assert max((bare - noisy[strength]).max() for strength in (0.1, 0.3)) < 0.03
    gained = [noisy[strength].mean() - bare.mean() for strength in (0.1, 0.3)]
    yield f"rises by {gained[0]:.2f} and {gained[1]:.2f}"
    assert noisy[1.0].max() < 0.15
    spread = rows("arena", "spread")
    spread = spread.pivot(index=["participants", "lr", "trial"], columns="strength", values="accuracy")
    cost = spread[0.0] - spread[0.3]
    ends = "{:.2f} [{:.2f}, {:.2f}]".format
    gained, lost = -cost[10, 0.1], cost[10, 0.3]
    yield f"it is {ends(gained.mean(), *interval(gained, NUMBER))} **higher**"
    yield f"with 90 participants {-cost[90, 0.3].mean():.2f} higher, an interval that holds 0"
    low, high = interval(cost[90, 0.3], NUMBER)
    assert low < 0 < high
    yield f"the noise costs {ends(lost.mean(), *interval(lost, NUMBER))}"
    plain = spread[0.0][10, 0.3].sort_values()
    assert plain.iloc[1] > 0.8
    yield f"one of ten trainings without any defence is at {plain.iloc[0]:.2f} after 150 rounds"
    each = spread[0.3][10, 0.3].sort_values()
    assert each.iloc[-2] < 0.12
    yield f"nine of ten learn nothing, and one ends at {each.iloc[-1]:.2f}"
    attacks = rows("arena", "defences").query("defence == 'noise' and state == 'untrained' and attack == 'RLU'")
    found = attacks.groupby("strength")["iacc"].mean().map("{:.2f}".format)
    yield f"where it still finds {found[0.1]} of the labels"
    yield f"by 10 at σ = 0.3 ({found[0.3]}) and by 32 at σ = 1 ({found[1.0]}, below the prior guess)"

    left = contested(["defences"], ["state", "defence", "strength"])["best"]
    yield f"σ = 0.1 leaves the best attack {left['untrained', 'noise', 0.1]:.2f} of the labels, 0.3 about 0.6"
    assert abs(left["untrained", "noise", 0.3] - 0.6) < 0.02
    prior = contested(["defences"], ["state", "defence", "strength"])["prior"]["trained", "noise", 0.1]
    some, none = (left["trained", "noise", strength] for strength in (0.1, 0.01))
    assert not [strength for strength in (0.1, 0.3) if interval(noisy[strength] - bare, NUMBER)[0] > 0]
    yield f"σ = 0.1 leaves it {some:.2f}, where the prior guess is at {prior:.2f}, and σ = 0.01 leaves it {none:.2f}"


@of("arena")
def who_is_told_of_the_defence():
    table = rows("arena", "defences").query("state == 'trained'").set_index(["defence", "strength"]).sort_index()
    table = {cell: table.loc[cell].pivot(index="trial", columns="attack", values="iacc") for cell in set(table.index)}
    table = {cell: wide.dropna(axis=1) for cell, wide in table.items() if "learned, adaptive" in wide}
    assert len(table) == 8
    mean = {cell: wide.mean().round(9) for cell, wide in table.items()}
    both = {cell: f"{one['learned, adaptive']:.2f}{{}} {one['learned']:.2f}" for cell, one in mean.items()}
    said = both["noise", 0.1].format(" of the labels if it is told, and")
    yield f"finds {said} if it is not"
    more, most = (both["noise", strength].format(" and") for strength in (0.3, 1.0))
    yield f"Behind σ = 0.3 it is {more}, behind σ = 1 it is {most}"
    yield f"with noise of 0.03 it is {both['clipping and noise', 0.03].format(' and')}"
    yield f"The prior guess finds {mean['noise', 0.1]['prior guess']:.2f}: under"
    behind, clear = {}, []
    for cell, wide in table.items():
        told, other = wide["learned, adaptive"], wide.drop(columns=[*FLOORS, "learned, adaptive"])
        lead = told - other[other.mean().round(9).idxmax()]
        behind[cell] = -lead.mean()
        clear += [cell] if interval(by_network(lead), NUMBER)[0] > 0 else []
        gain = by_network(told - wide["learned"])
        low, high = interval(gain, NUMBER)
        assert (low > 0) == (cell in [("noise", s) for s in (0.1, 0.3, 1.0)])
        assert (high < 0) == (cell == ("clipping and noise", 0.003))
        assert (gain > 0).all() or cell != ("clipping and noise", 0.03)
    assert clear == []
    worst = {cell: f"{by:.2f}" for cell, by in behind.items() if by > 0.03}
    assert worst == dict.fromkeys([("clipping and noise", 0.003), ("sparsification", 0.99)], "0.04")
    yield "is 0.04 behind the best other attack behind the weaker clipping (there the untold one)"


@of("arena")
def a_wide_gap():
    iacc = halves("members_resnet", 600)[1]
    gain = (iacc[TOLD] - iacc["learned"])["members"]
    yield f"it is worth {gain.min():.2f} to {gain.max():.2f} on these"
