"""``from tube_lightning import ...``: what people need first, imported when they ask for it."""

import subprocess
import sys

import pytest

import tube_lightning
from tube_lightning.checkpoints import load_arm, load_block_model
from tube_lightning.decisions import Choice, decide
from tube_lightning.pipeline import evaluate
from tube_lightning.scoring import conditional_table

NAMES = [Choice, conditional_table, decide, evaluate, load_arm, load_block_model]


def test_the_names_are_those_of_their_packages():
    assert [getattr(tube_lightning, name) for name in tube_lightning.__all__] == NAMES
    assert set(tube_lightning.__all__) == set(tube_lightning._HOMES)


def test_they_are_listed():
    assert set(tube_lightning.__all__) <= set(dir(tube_lightning))


def test_other_names_are_none():
    with pytest.raises(AttributeError, match="'tube_lightning' has no attribute 'no_such_name'"):
        tube_lightning.no_such_name  # noqa: B018


def test_nothing_slow_is_imported_before_it_is_asked_for():
    code = (
        "import sys, tube_lightning; dir(tube_lightning); "
        "print({'torch', 'numpy', 'lightning', 'transformers'} & set(sys.modules)); "
        "tube_lightning.load_arm; print('lightning' in sys.modules, 'torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:2] == ["set()", "False True"]
