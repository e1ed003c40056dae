"""A notebook's parameters: what is refused, in a run and where papermill alone hands them on."""

import pytest

from fedleak_book import parameters, paths
from fedleak_book.evidence.results import Results

WRONG = [
    ("record", "false"),
    ("trials", 2.5),
    ("trials", True),
    ("trials", 10**12),
    ("trials", -1),
    ("seed", "7"),
    ("profile", "Paper"),
    ("device", "tpu"),
    ("data_root", 5),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_value_of_another_kind_is_refused(name, value):
    for call in (lambda: parameters.check_call("llg", {name: value}), lambda: Results("llg", **{name: value})):
        with pytest.raises(ValueError, match=f"{name} is "):
            call()


def test_every_notebook_has_parameters_that_their_defaults_fit():
    for file in (paths.root() / "notebooks").glob("*.ipynb"):
        defaults = parameters.declared(file)
        assert defaults.keys() == parameters.KINDS.keys(), file
        parameters.check(defaults)
