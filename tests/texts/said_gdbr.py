"""GDBR: what the texts say in numbers."""

from saying import leads, of, rows, trials

from fedleak.intervals import NUMBER, interval


@of("gdbr")
def a_classifier_that_moves_on():
    table = rows("gdbr", "trained")
    found = table.groupby(["data", "scheme", "rounds", "trial", "form"])["insacc"].mean().unstack()
    lost = 100 * (found["whitened"] - found["whitened, stale head"])
    places = [("mnist", "random", 300), ("mnist", "random", 1000), ("cifar10", "random", 1000)]
    assert all(interval(lost[place], NUMBER)[0] > 0 for place in places)
    means = lost.groupby(["data", "scheme", "rounds"]).mean()
    worst = means[places]
    yield f"costs the attacker {worst.min():.0f} to {worst.max():.0f} points more on random batches"
    assert means.drop(places).abs().max() < 2
    paper = found.loc[("mnist", "random")]["paper"].unstack("rounds")
    gain = 100 * (paper[1000] - paper[0])
    assert interval(gain, NUMBER)[0] > 0
    yield f"starts low, gains {gain.mean():.0f} on MNIST"


@of("gdbr")
def pruning_of_the_whitened_form():
    table = rows("gdbr", "fig6").query("defence == 'pruning' and init == 'default' and form == 'whitened'")
    found = {net: trials(part, ["level"], "insacc") for net, part in table.groupby("net")}
    gain, lost = 100 * (found["lenet"][0.9] - found["lenet"][0.0]), found["resnet18-conv"]
    yield f"loses nothing at 0.9 on LeNet ({leads(gain, ' points')} more)"
    yield f"and {leads(100 * (lost[0.0] - lost[0.9]), '')} on ResNet-18"


@of("gdbr")
def the_default_initialisation():
    table = rows("gdbr", "table1").query("form == 'paper' and scheme == 'random'")
    found = 100 * table.groupby(["init", "net"])["insacc"].mean().unstack("net")
    positive, default = found.loc["positive"], found.loc["default"]
    yield f"the paper's form finds {default.min():.0f} to {default.max():.0f} % from the penultimate layer"
    lost = positive - default
    assert lost.idxmax() == "resnet18-conv"
    yield f"ResNet-18's loss of {lost.max():.0f} points is the largest"
    yield f"MLP-6 has {positive['mlp6']:.0f} % of random batches and LeNet {positive['lenet']:.0f} %"
    found = rows("gdbr", "fig2").groupby("init")[["top", "skew_p"]].mean().loc["default"]
    yield f"a largest mean of {found['top']:.3f}, a median skewness of {found['skew_p']:.1f}"


@of("errata")
def what_the_chapters_say_too():
    yield f"default (largest mean {rows('gdbr', 'fig2').groupby('init')['top'].mean()['default']:.3f})"


@of("gdbr")
def normalised_pixels():
    found = 100 * rows("gdbr", "fig4_normalised").groupby(["form", "layer"])["insacc"].mean()
    paper, vector, whitened = (found[form] for form in ("paper", "one vector", "whitened"))
    assert paper[:4].max() - paper[:4].min() < 0.5
    yield f"the paper's form has {paper[1]:.0f} % at #1 to #4, {paper[5]:.0f} % at #5 and {paper[6]:.0f} % at #6"
    assert (vector[:5] < paper[:5]).all()
    assert (whitened[:5] < paper[:5]).all()
    yield f"one vector has less: {vector[1]:.0f} % at #1 and {vector[6]:.0f} % at #6"


@of("gdbr")
def two_changes_by_network():
    table, share = rows("gdbr", "two_changes"), {}
    for net, n in {"alexnet": 10, "vgg11": 10, "resnet18-conv": 10, "resnet50-conv-imagenet": 5}.items():
        found = trials(table[table["net"] == net], ["form"], "insacc")
        assert len(found) == n
        gain = found.sub(found["paper"], axis=0)
        assert (interval(gain["first step only"], NUMBER)[0] < 0) == net.startswith("resnet")
        share[net] = 100 * gain.mean() / gain["whitened"].mean()
    crossing, first = (
        {net: part[form] for net, part in share.items()} for form in ("crossing only", "first step only")
    )
    assert 48 < crossing["resnet18-conv"] < 52
    yield f"over five networks: {crossing['resnet50-conv-imagenet']:.0f} % of the gain is the crossing's"
    yield f"the crossing alone brings {crossing['alexnet']:.0f} and {crossing['vgg11']:.0f} % of the whole gain"
    yield f"the first step alone {first['alexnet']:.0f} and {first['vgg11']:.0f} %"
