"""Classifiers of transformers, timm and peft, with the real packages: each is right, or refused with a reason."""

import copy
import warnings
from collections import OrderedDict

import pytest
import torch
from torch import nn

from fedleak.attacks.registry import WITH_AUXILIARY, get
from fedleak.data import Images
from fedleak.federated import Update
from fedleak.recording import read, record

peft = pytest.importorskip("peft")
timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")

CLASSES, Y, RATE = 10, torch.tensor((3, 3, 3, 3, 7, 7, 1, 0)), 0.1
SIZES = {"vocab_size": 100, "num_labels": CLASSES, "pad_token_id": 0}
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
WORDS, PICTURE, SMALL = (16,), (3, 32, 32), (3, 16, 16)


def make(name, config):
    """Return a small classifier of transformers, freshly initialised."""
    return getattr(transformers, f"{name}Classification")(getattr(transformers, config[0])(**SIZES | config[1]))


TRANSFORMERS = {
    "BERT": ("BertForSequence", ("BertConfig", BERT), WORDS),
    "DistilBERT": (
        "DistilBertForSequence",
        ("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}),
        WORDS,
    ),
    "GPT-2": ("GPT2ForSequence", ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 2}), WORDS),
    "Llama": ("LlamaForSequence", ("LlamaConfig", BERT), WORDS),
    "ViT": ("ViTForImage", ("ViTConfig", BERT | {"image_size": 16, "patch_size": 4}), SMALL),
    "ResNet": (
        "ResNetForImage",
        ("ResNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}),
        PICTURE,
    ),
}
TIMM = {
    "resnet10t": {},
    "nf_resnet26": {},
    "mobilenetv3_small_050": {},
    "mobilenetv4_conv_small_035": {},
    "vit_tiny_patch16_224": {"img_size": 32},
}


class Logits(nn.Module):
    """What the error message advises: a module whose forward returns the logits."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).logits


def inputs(shape, n=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if len(shape) == 1 and shape == WORDS:
        return torch.randint(1, 100, (n, *shape), generator=generator)
    return torch.rand(n, *shape, generator=generator)


def stepped(model, x):
    """Make one step of SGD, and return the model before it and the difference of the whole states."""
    before = copy.deepcopy(model)
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], RATE)
    nn.functional.cross_entropy(model(x).float(), Y).backward()
    optimiser.step()
    return before, Update.from_states(before.state_dict(), model.state_dict(), len(Y), 1, RATE)


def right(attack, update, model, shape):
    options = {"aux": Images(inputs(shape, 100, 1), torch.arange(100) % CLASSES)} if attack != "iLRG" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = get(attack)(update, model, adversary=WITH_AUXILIARY, **options)
    truth = Y.bincount(minlength=CLASSES) * (update.samples // len(Y))
    return int(torch.minimum(counts, truth).sum())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["BERT", "DistilBERT", "ResNet"])
def test_classifiers_of_transformers_that_return_logits_are_right(name, precision):
    kind, config, shape = TRANSFORMERS[name]
    for seed in range(3):
        torch.manual_seed(seed)
        x = inputs(shape)
        before, update = stepped(Logits(make(kind, config)).to(precision), x.to(precision) if len(shape) > 1 else x)
        assert right("iLRG", update, before, shape) >= 7


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_classifiers_of_transformers_as_they_are_are_refused_with_advice(name):
    kind, config, _ = TRANSFORMERS[name]
    model = make(kind, config)
    update = Update({n: p.detach() for n, p in model.named_parameters()}, "gradient", 8)
    with pytest.raises(ValueError, match=r"a classifier gives one tensor of logits|which layer makes the outputs"):
        get("iLRG")(update, model, adversary=WITH_AUXILIARY)


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_a_head_on_every_token_is_refused(name):
    kind, config, shape = TRANSFORMERS[name]
    before, update = stepped(Logits(make(kind, config)), inputs(shape))
    with pytest.raises(ValueError, match="is applied to all"):
        get("iLRG")(update, before, adversary=WITH_AUXILIARY)


def test_a_vision_transformer_is_read_once_its_head_is_named():
    kind, config, shape = TRANSFORMERS["ViT"]
    before, update = stepped(Logits(make(kind, config)), inputs(shape))
    with pytest.raises(ValueError, match=r"head_name"):
        get("iLRG")(update, before, adversary=WITH_AUXILIARY)
    before.head_name = "inner.classifier"
    assert right("RLU, whole head", update, before, shape) >= 7


@pytest.mark.parametrize("name", TIMM)
def test_classifiers_of_timm_are_right(name):
    torch.manual_seed(0)
    before, update = stepped(timm.create_model(name, num_classes=CLASSES, **TIMM[name]), inputs(PICTURE))
    before.input_shape = PICTURE
    assert right("RLU, whole head", update, before, PICTURE) >= 6


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [("deit_tiny_distilled_patch16_224", PICTURE, {"img_size": 32}), ("levit_128s", (3, 224, 224), {})],
)
def test_two_heads_are_refused(name, shape, options):
    model = timm.create_model(name, num_classes=CLASSES, **options).eval()
    model.input_shape = shape
    update = Update({n: p.detach() for n, p in model.named_parameters()}, "gradient", 8)
    with pytest.raises(ValueError, match=r"not those of a fully connected layer|head_name"):
        get("iLRG")(update, model, adversary=WITH_AUXILIARY)


ADAPTERS = {
    "LoRA": {"target_modules": ["head"]},
    "LoRA, body too": {"target_modules": ["body", "head"]},
    "rsLoRA": {"target_modules": ["head"], "use_rslora": True},
    "lora_bias": {"target_modules": ["head"], "lora_bias": True},
    "trained biases": {"target_modules": ["head"], "bias": "lora_only"},
    "DoRA": {"target_modules": ["head"], "use_dora": True},
    "saved head": {"target_modules": ["body"], "modules_to_save": ["head"]},
    "body alone": {"target_modules": ["body"]},
}
READ_BY = {"saved head": "iLRG", "body alone": None}


def adapted(name, exchange, trained):
    """Return a model with an adapter, trained or not, and its update as it is exchanged."""
    torch.manual_seed(1)
    network = nn.Sequential(OrderedDict(body=nn.Linear(20, 32), relu=nn.ReLU(), head=nn.Linear(32, CLASSES)))
    model = peft.get_peft_model(network, peft.LoraConfig(r=8, **ADAPTERS[name]))
    with torch.no_grad():
        for parameter in model.parameters():
            if trained and parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    before, update = stepped(model, inputs((20,)))
    if exchange == "get_peft_model_state_dict":
        states = [peft.get_peft_model_state_dict(one) for one in (before, model)]
        update = Update.from_states(*states, len(Y), 1, RATE)
    return before, update


@pytest.mark.parametrize("exchange", ["state_dict", "get_peft_model_state_dict"])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", [name for name in ADAPTERS if name != "DoRA"])
def test_adapters_are_right_by_either_exchange_and_frozen_heads_refused(name, trained, exchange):
    before, update = adapted(name, exchange, trained)
    attack = READ_BY.get(name, "adapter fit")
    if attack:
        assert right(attack, update, before, (20,)) >= 7
    for other in ("iLRG", "RLU, whole head") if attack != "iLRG" else ():
        with pytest.raises(KeyError, match="withholds"):
            right(other, update, before, (20,))


@pytest.mark.parametrize("exchange", ["state_dict", "get_peft_model_state_dict"])
def test_dora_is_right_at_first_and_refused_once_trained(exchange):
    before, update = adapted("DoRA", exchange, trained=False)
    assert right("adapter fit", update, before, (20,)) >= 7
    before, update = adapted("DoRA", exchange, trained=True)
    with pytest.raises(ValueError, match="the outputs of the frozen layer"):
        right("adapter fit", update, before, (20,))


LENGTHS = torch.tensor([16, 3, 9, 5, 12, 16, 7, 4])


class Masked(Logits):
    """Return the logits of padded texts, whose mask follows from the padding."""

    def forward(self, x):
        return self.inner(input_ids=x, attention_mask=(x != 0).long()).logits


@pytest.mark.parametrize("name", ["BERT", "DistilBERT"])
def test_padded_texts_are_measured_and_read_as_full_ones(name, tmp_path):
    mask = (torch.arange(16) < LENGTHS[:, None]).long()
    for seed in range(3):
        torch.manual_seed(seed)
        model = make(*TRANSFORMERS[name][:2])
        before, update = stepped(Masked(copy.deepcopy(model)), inputs(WORDS, seed=seed) * mask)
        _, full = stepped(Masked(copy.deepcopy(model)), inputs(WORDS, seed=seed))
        assert right("iLRG", update, before, WORDS) >= 7
        for attack in ("RLU, whole head", "LLG+"):
            assert right(attack, update, before, WORDS) >= right(attack, full, before, WORDS) - 1
        optimiser = torch.optim.SGD(model.train().parameters(), RATE)
        with record(tmp_path / str(seed), model, optimiser, round=1) as saw:
            for step in range(2):
                saw(Y)
                optimiser.zero_grad()
                model(input_ids=inputs(WORDS, seed=seed + step) * mask, attention_mask=mask, labels=Y).loss.backward()
                optimiser.step()
        (part,) = read(tmp_path / str(seed))
        assert (part.failed, part.counts) == ("", (2 * Y.bincount()).tolist())
        renamed = {f"inner.{n}": tensor for n, tensor in part.update().tensors.items()}
        assert right("iLRG", part.update().replace(renamed), before, WORDS) >= 14
