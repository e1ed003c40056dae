"""LIA-SA: what the texts say in numbers."""

from saying import of, rows

from fedleak.intervals import interval


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


@of("lia_sa")
def whose_arithmetic():
    table = rows("lia_sa", "precision")
    deep = table[~table["net"].isin(["resnet18", "resnet34"])]
    assert set(deep.groupby("net").size()) == {5}
    yield f"fails (B·err {deep['double'].min():.1f} to {deep['double'].max():.1f})"
    assert 1e-4 < table["single"].max() < 2.5e-4
    assert set(table["batch_size"]) == {16}
    yield "is exact (2·10⁻⁴ or less), at B = 16 on each of five networks a depth"


@of("errata")
def what_the_chapters_say_too():
    yield f"default (largest mean {rows('gdbr', 'fig2').groupby('init')['top'].mean()['default']:.3f})"


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
