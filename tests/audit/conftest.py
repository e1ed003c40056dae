"""Brief training, a recorded run, the command, and data whose classes can be distinguished."""

import pytest
from runs import nine
from typer.testing import CliRunner

from fedleak import cli
from fedleak.audit import case
from fedleak.data.embedded import synthetic


@pytest.fixture(autouse=True, scope="package")
def _briefly():
    """Train attackers that are trained in a tenth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("TRAINING", 3), ("BATCHES", 4), ("BATCHES_OF_MANY", 4)):
            patch.setattr(case, name, value)
        yield


@pytest.fixture
def coloured():
    """Return 400 images 3 x 8 x 8 of five classes, and their labels."""
    x, y, _ = synthetic("train", (3, 8, 8), 5, 400)
    return x, y


@pytest.fixture(scope="package")
def run(tmp_path_factory):
    """Return the folder of three rounds of three clients."""
    return nine(tmp_path_factory.mktemp("run"))


@pytest.fixture
def invoke():
    """Return a function that runs `fedleak audit` with these words, which ends with an exit code."""

    def invoked(*words, ends=0, **environment):
        result = CliRunner().invoke(cli.app, ["audit", *map(str, words)], env=environment)
        assert result.exit_code == ends, result.output
        return result

    return invoked
