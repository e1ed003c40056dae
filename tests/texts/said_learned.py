"""The learned attacker: what the text says in numbers."""

import pandas as pd
from saying import FLOORS, TOLD, WHOLE, answered, deep_cells, halves, leads, listed, minus, of, rows, trials

from fedleak.intervals import NUMBER, interval


@of("learned")
def the_weights_of_the_whole_head():
    table = rows("learned", "weighed")
    found = table.pivot_table(index="batch_size", columns="attack", values="iacc")
    before, after = found["training"], found["reading"]
    gain, more, images = before - found["equal counts"], after - before, found["all images"] - before
    yield f"With the weights of equal counts the whole head finds {listed(found['equal counts'])}"
    yield f"as in training, {listed(before)}, in the mean {gain.mean():.3f} more"
    yield f"As in reading it finds {listed(after)}, in the mean {more.mean():.3f} more than in training"
    behind = found[WHOLE] - after
    yield f"and is {behind.min():.3f} to {behind.max():.3f} behind the attack"
    yield minus(f"More images alone change it by {listed(images, '{:+.3f}')}")
    equations = found["all equations"] - before
    yield minus(f"more equations alone by {listed(equations, '{:+.3f}')}")


@of("learned")
def deep_networks_against_the_targets():
    found = deep_cells()
    count, behind = ((found["learned"] - found["best"]) >= 0.05).sum(), found["whole"] - found["learned"]
    less = (found["learned"] < found["best"]).sum()
    yield f"<arena-deep-learned>` by 5 points in {count} of eight unbalanced cells, and behind it in {less}"
    mnist = judged().loc["MNIST"].xs("unbalanced", level="composition")
    small = (mnist["learned"] - mnist["best"] >= 0.05).sum()
    yield f"{small + count} of 12: {small} of LeNet's 4, and {count} of the 8 {{ref}}`deep ones <arena-deep-learned>`"
    most = (100 * behind.groupby("net").max()).round()
    yield f"VGG-11 and ResNet-18 (unbalanced) by up to {most['vgg11_bn']:.0f} and {most['resnet18']:.0f}"


def judged():
    """Mean iAcc by data set, batch size, composition; the learned attacker, its rivals, and the even guess."""
    table = rows("learned", "judged").query("composition != 'simulated'")
    keys = ["data", "batch_size", "composition"]
    wide = of_all_networks(table, keys)
    rivals = wide.drop(columns=["learned", "RLU, whole head", "prior guess", "random guess"])
    return wide.assign(best=rivals.max(axis=1), which=rivals.idxmax(axis=1)).round(6)


def of_all_networks(table, keys):
    """Mean iAcc by cell of the attacks that answered on every network of it."""
    each = table.groupby([*keys, "attack"], sort=False)["iacc"].agg(["mean", "size"]).unstack()
    return each["mean"].where(each["size"].eq(each["size"]["learned"], axis=0))


@of("learned")
def behind_defences():
    table = rows("learned", "adaptive")
    iacc, held = (
        table.pivot_table(index=["defence", "strength"], columns="attack", values=v) for v in ("iacc", "coverage")
    )
    noise, clipping = iacc.loc["noise", 0.1], iacc.loc["clipping and noise", 0.03]
    tenth = iacc.loc["sparsification", 0.9]
    yield f"knows it finds {noise['adaptive']:.2f} of the labels"
    yield f"the one that does not finds {noise['learned']:.2f}"
    yield f"with noise it is {clipping['adaptive']:.2f} and {clipping['learned']:.2f}"
    yield f"knowing it costs ({tenth['adaptive']:.2f} and {tenth['learned']:.2f})"
    hundredth = iacc.loc["sparsification", 0.99]
    yield f"largest hundredth {hundredth['adaptive']:.2f} becomes {hundredth['learned']:.2f} where it does not know"
    others = iacc.drop(columns=["adaptive", "learned", "prior guess", "random guess"]).max(axis=1)
    lead = iacc["adaptive"] - others
    yield f"from −{-lead.min():.2f} to +{lead.max():.2f}"
    ends = held.agg(["min", "max"])
    own, naive = (f"{ends.loc['min', a]:.2f} to {ends.loc['max', a]:.2f}" for a in ("adaptive", "learned"))
    yield f"hold {own} of these counts, those of the other {naive}"


@of("learned")
def how_much_could_be_found():
    table = rows("learned", "bounds").query("composition == 'unbalanced'")
    keys = ["attack", "knows", "aux_images", "iterations"]
    mean = table.groupby([*keys, "batch_size"])["iacc"].mean().unstack("batch_size")
    even = table[table["attack"] == "even guess"].groupby("batch_size")["iacc"].mean()
    ours = mean.loc["learned"].apply(lambda row: f"{row[8]:.2f} and {row[32]:.2f}", axis=1)
    other, own = ours["other images"], ours["clients' images"].item()
    yield f"the even guess finds {even[8]:.2f} and {even[32]:.2f}: that is the floor"
    yield f"with 10,000 images finds {other[10000, 300]} after 300 iterations, and {other[10000, 1200]} after 1,200"
    yield f"With 200 images it finds {other[200, 300]}, with 1,000 images {other[1000, 300]}"
    yield f"with the clients' own images, finds {own} after 300 iterations"
    wide = trials(table[table["attack"] == "learned"], [*keys[1:], "batch_size"], "iacc")
    usual = wide["other images", 10000, 300]
    gains = (wide["clients' images", 60000, 300] - usual, wide["other images", 10000, 1200] - usual)
    oracle, longer, images = (
        "{:+.3f} and {:+.3f}".format(*gain.mean()[[8, 32]]).replace("-", "−")
        for gain in (*gains, usual - wide["other images", 200, 300])
    )
    yield f"lead over 10,000 other images is {oracle}. Four times the training gives {longer}"
    yield f"10,000 images in place of 200 give {images}"


@of("learned")
def small_and_large_batches():
    found = judged()
    mnist, cifar = (found.loc[name, 8, "unbalanced"] for name in ("MNIST", "CIFAR-10"))
    yield f"of 8 it finds {mnist['learned']:.2f} on MNIST and {cifar['learned']:.2f} on CIFAR-10"
    yield f"of each cell finds {mnist['best']:.2f} and {cifar['best']:.2f}, and the even guess"
    yield f"the even guess {mnist['prior guess']:.2f} and {cifar['prior guess']:.2f}"
    assert cifar["best"] == cifar["SPEAR"]
    rest = cifar.drop([*FLOORS, "learned", WHOLE, "SPEAR", "best", "which"]).astype(float)
    yield f"(The {cifar['best']:.2f} are SPEAR's, which reads the layers below the head"
    yield f"the best of the others, {rest.idxmax()}, finds {rest.max():.2f}.)"
    lead = (found["learned"] - found["best"]).xs("unbalanced", level="composition")
    whole = (found["learned"] - found["RLU, whole head"]).xs("unbalanced", level="composition")
    for size in sorted(set(lead.index.get_level_values(1)))[1:]:
        pair = [f"{lead[name, size]:+.2f}".replace("-", "−") for name in ("MNIST", "CIFAR-10")]
        own = [f"{whole[name, size]:+.2f}".replace("-", "−") for name in ("MNIST", "CIFAR-10")]
        both = f"{pair[0]} and {pair[1]} over the best published attack, {own[0]} and {own[1]}"
        yield f"{size}: {both} over the whole head"
    yield f"ahead by at least 5 points in {(lead >= 0.05).sum()} of {len(lead)} unbalanced cells"
    rest, over = 100 * lead.drop(("CIFAR-10", 8)), 100 * whole.xs(8, level=1)
    table = rows("learned", "judged").query("composition == 'unbalanced'")
    each = trials(table, ["data", "batch_size", "attack"], "iacc")
    rivals = found.xs("unbalanced", level="composition")["which"].drop(("CIFAR-10", 8))
    worst = min((each[*cell, "learned"] - each[*cell, rival]).min() for cell, rival in rivals.items())
    one = f"(means; one network of MNIST is {-100 * worst:.0f} behind at 32)"
    yield f"by {rest.min():.0f} to {rest.max():.0f} points in unbalanced batches {one}, except in batches of 8 on CIFAR"
    yield f"behind it in batches of 8 by {over['MNIST']:.0f} points on MNIST (by {over['CIFAR-10']:.0f} on CIFAR-10, an"
    assert abs(whole.drop([8, 32], level=1)).max() < 0.015


@of("learned")
def ten_fresh_networks():
    table = rows("learned", "judged").query("data == 'MNIST' and trial >= 3")
    wide = table.pivot(index=["composition", "batch_size", "trial"], columns="attack", values="iacc")
    small, large = (wide.loc["unbalanced", size].dropna(axis=1) for size in (8, 32))
    assert len(small) == len(large) == 10
    two = (leads(a - b, "", ".2f") for a, b in ((small["learned"], small["LLG"]), (small["LLG"], small["prior guess"])))
    yield "over LLG is {}, LLG's over the even guess {}".format(*two)
    yield f"its own over that guess {leads(small['learned'] - small['prior guess'], '', '.2f')}"
    yield f"ahead of LLG+ too, by {leads(large['learned'] - large['LLG+'], '', '.2f')}"
    rivals = large.drop(columns=[*FLOORS, "learned", WHOLE]).mean()
    assert rivals.idxmax() == "Decaf"
    yield f"the lead of {leads(large['learned'] - large['Decaf'], '', '.2f')} is open"
    low, high = interval(large["learned"] - large[WHOLE], NUMBER)
    assert low < 0 < high
    assert interval(small["learned"] - small[WHOLE], NUMBER)[0] > 0
    assert interval(large["learned"] - large["prior guess"], NUMBER)[0] > 0
    small, large = (wide.loc["balanced", size] for size in (8, 32))
    small, large = (leads(each["learned"] - each["prior guess"], "", ".2f") for each in (small, large))
    yield f"ahead of the even guess by {small}"
    yield f"it is level ({large})"


@of("learned")
def balanced_batches():
    found = judged().xs("balanced", level="composition")
    over = found["learned"] - found["prior guess"]
    each = [f"{v:+.2f}".replace("-", "−") for size in (8, 32) for v in (over["MNIST", size], over["CIFAR-10", size])]
    large = 100 * over.drop(8, level="batch_size")
    yield f"from {-large.min():.0f} points behind an even guess to {large.max():.0f} ahead"
    yield f"leads over the even guess are {each[0]} and {each[1]} at B = 8, {each[2]} and {each[3]} at 32"
    large = [f"{over[name, size]:+.2f}".replace("-", "−") for size in (128, 512) for name in ("MNIST", "CIFAR-10")]
    yield "at 128 they are {} and {}, at 512 {} and {}".format(*large)


@of("learned")
def where_it_ends():
    found = judged()
    over = (found["learned"] - found[WHOLE]).round(3)
    least = over.xs("unbalanced", level="composition")
    assert least.idxmin() == ("CIFAR-10", 32)
    assert over.min() == least.min() == -0.015
    yield "L2 fails by half a point, on CIFAR-10 at 32"
    even = (found["prior guess"] - found["learned"])["MNIST"].xs("balanced", level="composition")[[32, 128, 512]]
    yield f"from 32 on, by {100 * even.min():.0f} to {100 * even.max():.0f} points, so L3 fails at 32"
    held = rows("learned", "judged").query("attack == 'learned'")
    held = held.groupby(["composition", "data", "batch_size"])["coverage"].mean()
    yield f"hold up to {held['simulated', 'CIFAR-10'].max():.2f} of the counts, too many"
    deep = rows("learned", "deep").query("attack == 'learned' and composition != 'simulated'").groupby("net")
    lost = 100 * (0.9 - deep["coverage"].min())
    assert lost.idxmax() == "resnet18"
    narrow = 100 * (0.9 - held.drop("simulated").min())
    yield f"down to {narrow:.0f} points below 0.90, on a ResNet-18 to {lost.max():.0f}"


@of("learned")
def coverage():
    table = rows("learned", "judged").query("attack == 'learned'")
    held = table.groupby(["composition", "data", "batch_size"])["coverage"].mean()
    simulated, real = held["simulated"], held[["unbalanced", "balanced"]]
    yield f"{simulated.min():.2f} to {simulated.max():.2f} of the counts of batches as simulated"
    yield f"{real.min():.2f} to {real.max():.2f} in the cells of the two compositions"


@of("learned")
def trained_deep_networks():
    table = rows("learned", "deep").set_index(["composition", "net", "batch_size"])
    wide = table.set_index("attack", append=True)["iacc"].unstack()
    held = table.query("attack == 'learned'")["coverage"]["simulated"]
    for net, name in {"vgg11_bn": "VGG-11", "resnet18": "ResNet-18"}.items():
        over = (wide["learned"] - wide["even guess"])["balanced", net]
        yield f"On {name} its leads over the even guess are " + minus(listed(over, "{:+.2f}"))
        yield f"{name} {held[net].min():.2f} to {held[net].max():.2f}"
        assert over[8] > 0 > over[32]
    yield f"of VGG-11 its 90 % intervals hold {listed(held['vgg11_bn'])} of the counts"
    yield f"of ResNet-18 {listed(held['resnet18'])}."


@of("learned")
def images_that_the_network_was_trained_on():
    held, iacc, losses = halves("members")
    plain = held["learned"]
    yield losses
    yield f"hold {listed(plain['others'])} of the others' counts, and {listed(plain['members'])} of the members'"
    lead = iacc["learned"] - iacc[WHOLE]
    for half in ("others", "members"):
        yield f"{listed(iacc['learned'][half])} of the labels of {half}"
    leads = (listed(lead[half], "{:+.2f}") for half in ("others", "members"))
    yield minus("its leads are {} on others, and {} on members".format(*leads))
    both = (listed(held[TOLD][half]) for half in ("members", "others"))
    yield "hold {} of the members' counts, and {} of the others'".format(*both)
    gain = iacc[TOLD] - iacc["learned"]
    gains = (listed(gain[half], "{:+.2f}") for half in ("members", "others"))
    yield minus("by {} on members, and by {} on others".format(*gains))
    widest = plain["others"] - plain["members"]
    yield f"hold {plain['members'].min():.2f} to {plain['members'].max():.2f} of the counts of images that the network"
    yield f"and {plain['others'].min():.2f} to {plain['others'].max():.2f} of others"
    assert widest.idxmax() == 512


@of("learned")
def members_of_a_deep_network():
    held, iacc, losses = halves("members_resnet", 600)
    plain = held["learned"]
    yield losses
    yield f"cover {listed(plain['others'])} of the others' counts, and {listed(plain['members'])} of the members'"
    yield f"told the training loss {listed(held[TOLD]['members'])} of the members'"
    of_members = (listed(iacc[name]["members"]) for name in (TOLD, "learned", WHOLE))
    yield "names {} of the members' labels, where the one that is not names {}, and the whole head {}:".format(
        *of_members
    )
    lead = (iacc[TOLD] - iacc[WHOLE])["members"]
    even = (iacc[TOLD] - iacc["even guess"])["members"]
    yield f"leads over the whole head are {listed(lead, '{:+.2f}')}**, over the even guess {listed(even, '{:+.2f}')}"
    yield f"ahead of the whole head by {lead.min():.2f} to {lead.max():.2f}"
    yield f"loses up to {(iacc['learned'] - iacc[TOLD])['others'].max():.2f}"
    ends = [f"{plain[half].min():.2f} {{}} {plain[half].max():.2f}" for half in ("members", "others")]
    yield f"on such a ResNet-18 (600 steps) {ends[0].format('to')} and {ends[1].format('to')}"
    gain = (iacc[TOLD] - iacc["learned"])["members"]
    few, found, fewer_losses = halves("members_resnet", 300)
    yield fewer_losses
    less = (found[TOLD] - found["learned"])["members"]
    yield minus(f"of the members' labels by {listed(less, '{:+.2f}')}")
    said, bare = (f"{few[name]['members'].min():.2f} to {few[name]['members'].max():.2f}" for name in (TOLD, "learned"))
    yield f"they hold {said} of the members' counts, and {bare} without"
    yield minus(f"gain on members is {less.mean():+.2f} after 300 steps and {gain.mean():+.2f} after 600")


@of("learned")
def local_steps():
    table = rows("learned", "local")
    found = answered(table, ["state", "scheme", "lr"])
    trained, fresh = found.loc["trained"], found.loc["untrained", "fedavg"]
    slow, fast = (trained.loc["fedavg", lr] for lr in (0.01, 0.1))
    whole = "RLU, whole head"
    yield f"{slow['learned']:.2f} of the labels at the rate 0.01 and {fast['learned']:.2f} at 0.1, RLU"
    yield f"RLU {slow['RLU']:.2f} and {fast['RLU']:.2f}, the whole head {slow[whole]:.2f} and {fast[whole]:.2f}"
    assert slow["which"] == fast["which"] == "Decaf"
    yield f"the best published attack, Decaf, {slow['best']:.2f} and {fast['best']:.2f}"
    lead = trained["learned"] - trained["best"]
    ends = f"{trained['learned'].min():.2f} to {trained['learned'].max():.2f}"
    yield f"it finds {ends}, which is {lead.min():.2f} to {lead.max():.2f} more than the best published attack"
    over = trained["learned"] - trained["RLU"]
    yield f"over RLU the leads are {over.min():.2f} to {over.max():.2f}"
    wide = trials(table.query("state == 'trained'"), ["scheme", "lr", "attack"], "iacc")
    clear = {}
    for cell, which in trained["which"].items():
        over = wide[*cell, "learned"] - wide[*cell, which]
        ends = interval(over, NUMBER)
        if ends[0] > 0:
            clear[cell] = "{:+.2f} [{:+.2f}, {:+.2f}]".format(over.mean(), *ends)
    assert list(clear) == [("fedavg", 0.01), ("scaffold", 0.01)]
    yield f"for plain SGD ({clear['fedavg', 0.01]}) and Scaffold ({clear['scaffold', 0.01]})"
    assert len(trained) == 4  # "two of four intervals"
    drift = trained.loc["scaffold", 0.01]
    yield f"under Scaffold it finds {drift['learned']:.2f} and RLU {drift['RLU']:.2f}, and the whole head refuses"
    assert pd.isna(drift[whole])
    best = (fresh[["best", whole]].max(axis=1) - fresh["learned"])[0.1]
    yield f"LeNet is {100 * best:.0f} points behind the whole head"
    momentum = trained.loc["sgdm", 0.01]
    yield f"finds {momentum['learned']:.2f}, RLU {momentum['RLU']:.2f} and the whole head {momentum[whole]:.2f}"
    yield f"{fresh['learned'][0.01]:.3f} at the rate 0.01 and {fresh['learned'][0.1]:.3f} at 0.1"
    yield f"where RLU finds {fresh['RLU'][0.01]:.3f} and {fresh['RLU'][0.1]:.3f}"
    held = table[table["attack"] == "learned"].groupby(["state", "lr", "scheme"])["coverage"].mean()
    new = held["untrained"].droplevel("scheme")
    yield f"They hold {held['trained'].min():.2f} to {held['trained'].max():.2f} of the counts on the trained network"
    fast = table.query("attack == 'learned' and lr == 0.1")
    assert all(interval(part["coverage"])[1] > 0.90 for _, part in fast.groupby(["state", "scheme"]))
    together = fast.groupby("trial")["coverage"].mean()
    yield "both networks together ({:.2f} [{:.2f}, {:.2f}])".format(together.mean(), *interval(together))
    yield f"on the untrained one {new[0.01]:.2f} at the rate 0.01 and {new[0.1]:.2f} at 0.1"
    lows = {way: interval(wide[*way, "learned"] - wide[*way, "RLU"], NUMBER)[0] for way in trained.index}
    assert [way for way, low in lows.items() if low < 0] == [("fedavg", 0.1)]


@of("learned")
def what_the_prior_costs():
    iacc = trials(rows("learned", "prior"), ["batch_size", "attack"], "iacc")
    mean = iacc.mean().unstack()
    told, plain, whole = (mean[name] for name in ("told", "learned", WHOLE))
    three = "{:.3f} and {:.3f}".format
    yield f"finds {three(*told)} of the labels of batches of 32 and 128; not told, {three(*plain)}"
    yield f"the whole head finds {three(*whole)}"
    yield f"ahead of the whole head by {three(*(told - whole))} and gains {three(*(told - plain))}"
    for size in (32, 128):
        assert (iacc[size]["told"] > iacc[size][["learned", WHOLE]].max(axis=1)).all()
    assert 0.01 < (told - whole).min() < 0.02  # B4 fails by less than a point
    assert 0.01 < (told - plain).min() < 0.02  # and so does B5


@of("learned")
def new_networks():
    table = rows("learned", "fresh")
    found = answered(table, ["net", "composition", "batch_size"])
    lead = (found["learned"] - found["best"]).groupby("net").min()
    yield minus(f"its least lead over the best published attack is {lead['lenet']:+.3f} on LeNet")
    yield minus(f"{lead['vgg11_bn']:+.3f} on VGG") + "-11"
