"""A set-up to start from: change what differs from yours, and run `fedleak audit` on this file."""

from torch import nn
from torchvision.models import resnet18

from fedleak.audit import Setup

# from fedleak.federated.defences import ClippedNoise, PureNoise, Sparsification
# from fedleak.federated.restricted import Withhold


def model() -> nn.Module:
    """Make your model; load your weights here, with `torch.load(..., weights_only=True)`."""
    return resnet18(num_classes=10)


setup = Setup(
    model=model,  # or the nn.Module itself: its weights and its mode (training or evaluation) are taken as they are
    shape=(3, 32, 32),  # of one input; not needed where data are given
    # What a client does. "fedsgd" shares the gradient of one batch; "fedavg", "sgdm", "nag", "scaffold", "fedprox",
    # "feddyn" and "feddc" share the change of the weights after some local steps.
    algorithm="fedsgd",
    batch_size=32,
    # algorithm="fedavg", steps=5, epochs=2, lr=0.01,
    # loss=nn.CrossEntropyLoss(label_smoothing=0.1),  # or any function of logits and labels
    # What it does to its update before it sends it.
    # defences=[Sparsification(discard=0.9), PureNoise(sigma=0.01, seed=0)],
    # defences=[Withhold(["fc.weight", "fc.bias"])],
    # Your data: a pair of tensors (x [N, 3, 32, 32], y [N]), or fedleak.data.load(...). Half of them play the clients',
    # of the other half the adversary has `auxiliary` a class. Without data, synthetic ones stand in.
    # data=(x, y),
    auxiliary=20,
    # How a batch's labels are made up: half of one class and a quarter of another ("unbalanced"), "balanced", "single",
    # "permuted", "subclassed", or as often as the data hold them ("data").
    composition="unbalanced",
    # Who attacks; by default whoever can do most. "shared gradients" (which keeps no limit, as the server has the
    # model), "white-box model", "auxiliary knowledge".
    # adversary="white-box model",
    # clients=10,  # secure aggregation over ten clients: the server sees their sum alone, and may cheat with its models
    trials=20,  # updates that are attacked
    # images=500,  # iterations of one image inversion
    seed=0,
)
