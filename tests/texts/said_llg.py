"""LLG, LIA-SA and GDBR: what the texts say in numbers."""

import numpy as np
from saying import leads, of, rows, trials, what_noise_costs
from scipy import stats

from fedleak.intervals import NUMBER, interval


@of("lia_sa")
def few_samples_and_a_saturated_softmax():
    table = rows("lia_sa", "saturated").groupby(["data", "batch_size", "scale"])[["all", "largest"]].mean()
    right = table.loc["cifar100", "all"]
    yield f"each of the two alone gives {100 * right[102, 1]:.0f} and {100 * right[1024, 1000]:.0f} %"
    yield f"both together {100 * right[102, 1000]:.0f} %"
    there = table.loc["imagenet"].iloc[0]
    largest = 100 * rows("lia_sa", "saturated").query("data == 'imagenet'").groupby("trial")["largest"].mean()
    yield f"one class has {largest.min():.0f} to {largest.max():.0f} % of the probability"
    yield f"On ImageNet LLG has {100 * there['all']:.0f} %"


@of("lia_sa")
def how_many_clients_one_constant_tells_apart():
    table = rows("lia_sa", "conditioning")
    fcn3 = table.query("net == 'fcn3'")
    full = (fcn3["rank"] == fcn3["clients"]).groupby([fcn3["recipe"], fcn3["clients"]]).sum()
    assert full["literal", 10] == full["log", 10]
    assert full["literal", 20] == full["log", 20] == 0
    yield f"the linear system of FCN-3 is singular on {20 - full['literal', 10]} of 20 networks"
    assert table.query("recipe == 'vector' and net != 'resnet18-imagenet'")["log10"].max() < 2.3  # "below 200"
    worse = table.query("mode == 'train'").groupby(["recipe", "clients", "net"])["log10"].mean().unstack()
    better = worse[["vgg11_bn", "fcn3"]].min(axis=1) > worse["resnet18"]  # "five clients or more"
    assert better["literal"].drop(2).all()
    assert (worse["vgg11_bn"] < worse["resnet18"]).drop("literal").all()  # "not better"
    evaluated = table.query("mode == 'eval' and recipe != 'vector'")["rank"]
    assert set(evaluated) == {2}
    errors = rows("lia_sa", "fig3").query("rule == 'LIA-SA, literal' and net == 'vgg11_bn' and clients == 5")
    exact = errors[errors["batch_size"] == 1024].groupby("trial")["target"].min() == 1
    yield f"{exact.sum()} of {len(exact)} rounds"
    many = rows("lia_sa", "fig3").query("clients == 100")
    right = many[many["rule"] != "LIA-SA, literal"].dropna(subset="target").groupby(["net", "rule"])["target"]
    assert set(right.min()) == {1}
    assert right.size().unstack().to_dict("list") == {"LIA-SA, log": [3, 3], "LIA-SA, vector": [10, 10]}
    spared = many.query("net == 'resnet18' and rule == 'LIA-SA, literal'")["target"]
    assert (len(spared), spared.min()) == (10, 1)
    large = rows("lia_sa", "fig5").query("net == 'fcn3'")
    assert (len(large), large["n"].max(), large["exact"].min()) == (1, 1, 1)
    few = rows("lia_sa", "table1").query("rule in ['LIA-SA, literal', 'LIA-SA, log']")
    assert few[few["net"] != "vgg11_bn"]["b_err"].max() < 0.01
    literal, log = 10 ** few.query("net == 'vgg11_bn'").groupby("rule")["log10"].mean()
    assert 4.5e4 < literal < 5.5e4
    yield f"the literal condition is 5·10⁴ and the logarithmic one {log:.0f}"


@of("lia_sa")
def a_baseline_on_sums():
    table = rows("lia_sa", "table1").query("rule == 'iLRG'")
    vgg = table[table["net"] == "vgg11_bn"]["all"]
    assert len(vgg) == 20
    low, high = interval(vgg)
    yield f"iLRG has {100 * vgg.mean():.0f} % [{100 * low:.0f}, {100 * high:.0f}] on VGG-11 over twenty networks"
    deep = 100 * table[table["data"] == "cifar100"]["all"]
    yield f"{deep.min():.0f} to {deep.max():.0f} % on each of ten ResNet-18"


@of("llg")
def noise_in_table_1():
    sgd, avg = what_noise_costs()
    yield f"FedSGD {sgd} and FedAvg {avg}, paired over three trainings"
    sgd, avg = (found.split()[0] for found in (sgd, avg))
    yield f"at a cost of {sgd} points under FedSGD and {avg} under FedAvg"


@of("llg")
def noise_left_in_the_average():
    louder = rows("llg", "table1_why").query("defence == 'noise'").set_index("algorithm")["accuracy"]
    assert len(louder) == 2  # "one training each"
    sgd, avg = (f"{100 * louder[algorithm]:.2f} %" for algorithm in ("FedSGD", "FedAvg"))
    yield f"which then gives {sgd}, as printed, and not for FedAvg, {avg} (printed: 13.5 % or less; one training each)"


@of("llg")
def what_compression_costs():
    table = rows("llg", "fig7").query("algorithm == 'FedSGD' and defence in ['none', 'sparse']")
    asr = table.groupby(["batch_size", "level"])["asr"].mean().unstack()
    lost = 100 * (asr[0.0] - asr[0.4])
    assert lost.drop(128).max() < 0.5
    yield f"θ = 40 % costs LLG+ {lost[128]:.1f} points of ASR at B = 128"
    yield f"and θ = 80 % up to {100 * (asr[0.0] - asr[0.8]).max():.0f} points"


@of("llg")
def what_a_guess_finds():
    asr = rows("llg", "fig4").query("attack == 'random guess' and algorithm == 'FedAvg' and batch_size >= 32")
    asr = 100 * asr.groupby("data")["asr"].mean()
    yield f"a guess finds {asr['mnist']:.0f} % on MNIST and {asr['celeba-hair']:.0f} % on CelebA"
    # of 80 samples a user has 40 of one class, 20 of another, and 20 of classes drawn at random; a batch has 8 of them
    drawn, share = stats.binom(20, 0.1), 0.0
    for fixed, classes in ((40, 1), (20, 1), (0, 8)):
        for count in range(21):
            both = np.minimum.outer(range(9), range(9))
            chance = np.outer(stats.hypergeom(80, fixed + count, 8).pmf(range(9)), stats.binom(8, 0.1).pmf(range(9)))
            share += classes * drawn.pmf(count) * (both * chance).sum() / 8
    yield f"it is right for {100 * share:.1f} % in expectation"


@of("llg")
def the_scale_of_local_steps():
    asr = rows("llg", "fedavg_readings").groupby(["lr", "batch_size", "reading"])["asr"].mean().unstack()
    best = {lr: set(part.idxmax(axis=1).str.split(":").str[0]) for lr, part in asr.groupby("lr")}
    assert best == {0.001: {"linear"}, 0.01: {"as printed"}, 0.1: {"as released"}}
    yield f"({asr.loc[0.001].max(axis=1).min():.2f} and more at every batch size)"
    more = (asr["as released: m / γ, s"] - asr["as printed: m, s"]).loc[0.1]
    yield f"finds {more.min():.2f} to {more.max():.2f} more than Eq. 19 as printed"
    assert set(asr.loc[0.1].idxmin(axis=1).str.split(":").str[0]) == {"linear"}
    steps = rows("llg", "by_step").groupby(["lr", "step"])[["length", "overshot"]].mean()
    first, second, third = (steps.loc[(lr, 10), "length"] for lr in (0.001, 0.01, 0.1))
    yield f"ten of them come to {first:.1f} times the first. At 0.01 they come to {second:.1f} times the first"
    assert third < 1
    assert steps.loc[(0.1, 2), "overshot"] > 0.5


@of("llg")
def impact_or_offset():
    mean = rows("llg", "two_parts").groupby(["impact", "offset", "algorithm"])["asr"].mean()
    own, impact, offset = mean["own", "none"], mean["auxiliary", "none"], mean["own", "auxiliary"]
    yield f"LLG alone finds {own['FedSGD']:.2f} under FedSGD and {own['FedAvg']:.2f} under FedAvg"
    yield f"in place of its own it finds {impact['FedSGD']:.2f} and {impact['FedAvg']:.2f}"
    yield f"with LLG+'s offset {offset['FedSGD']:.2f} and {offset['FedAvg']:.2f}"


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


@of("llg")
def an_activation_before_the_head():
    asr = rows("llg", "fig5").query("batch_size > 2")
    asr = asr[(asr["algorithm"] == "FedSGD") | (asr["batch_size"] <= 16)]
    for algorithm, said in {"FedSGD": "The gain is {}", "FedAvg": "Under FedAvg, up to B = 16, it is {}"}.items():
        found = trials(asr[asr["algorithm"] == algorithm], ["net"], "asr").dropna()
        gain = found["resnet20-relu"] - found["resnet20"]
        assert len(gain) == 20
        yield said.format(leads(gain, "", ".2f"))
        if algorithm == "FedSGD":
            assert found["resnet20-relu"].min() > 0.96
            low, high = (part for _, part in found["resnet20"].groupby(found["resnet20"] > 0.3))
            assert (len(low), len(high)) == (8, 12)
            spans = [f"{part.min():.2f} to {part.max():.2f}" for part in (low, high)]
            yield f"two groups, eight networks from {spans[0]} and twelve from {spans[1]}"


@of("lia_sa")
def whose_arithmetic():
    table = rows("lia_sa", "precision")
    deep = table[~table["net"].isin(["resnet18", "resnet34"])]
    assert set(deep.groupby("net").size()) == {5}
    yield f"fails (B·err {deep['double'].min():.1f} to {deep['double'].max():.1f})"
    assert 1e-4 < table["single"].max() < 2.5e-4
    assert set(table["batch_size"]) == {16}
    yield "is exact (2·10⁻⁴ or less), at B = 16 on each of five networks a depth"


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


@of("llg")
def networks_under_local_steps():
    table = rows("llg", "fig5").query("algorithm == 'FedAvg' and batch_size >= 32")
    asr, found = table.groupby("net")["asr"].mean(), trials(table, ["net"], "asr")
    yield f"LLG+ finds {asr['cnn']:.2f} on the CNN, {asr['lenet']:.2f} on LeNet and {asr['resnet20']:.2f} on ResNet20"
    lenet, resnet = (found["cnn"] - found[net].dropna() for net in ("lenet", "resnet20"))
    assert (lenet.count(), resnet.count()) == (50, 10)
    yield f"ahead of LeNet, by {leads(lenet.dropna(), '', '.2f')}, rests on fifty networks each"
    yield f"lead on ResNet20 is {leads(resnet.dropna(), '', '.2f')}, over ten networks"
    yield f"finds from {found['resnet20'].min():.2f} to {found['resnet20'].max():.2f}"
    found = rows("llg", "dlg").query("algorithm == 'FedAvg'")["asr"]
    assert len(found) == 10
    yield f"reaches about {found.mean():.2f} and 0.54, on ten and six runs"


@of("lia_sa")
def honest_clients():
    table = rows("lia_sa", "honest").query("batch_size == 1024")
    vgg = table[table["net"] == "vgg11_bn"]
    assert (table[table["net"] != "vgg11_bn"]["target"] == 1).all()
    assert len(vgg) == 10
    assert (vgg["target"] < 1).sum() == (vgg["b_err"] > 0.5).sum() == 2
    assert (vgg["closed"] > 0.5).sum() == 1
    assert (vgg.loc[vgg["target"] < 1, "target"] == 0.98).all()  # one of 50
    yield f"(B·err {vgg['b_err'].mean():.2f} against {vgg['closed'].mean():.2f} on the mean)"


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
