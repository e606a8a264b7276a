"""Tests of the training file."""

from pathlib import Path

import pytest

from millrace_learner import training
from millrace_learner.__main__ import main

FROZEN = Path(__file__).parents[1] / "training.toml"


def test_frozen_training_is_valid_and_has_a_fifth_of_recordings() -> None:
    found = training.load(FROZEN)
    assert found.recorded_share == 0.2
    assert found.utility.loss_weight > 0
    assert set(found.utility.delay_exponent) == set(training.CLASSES)


def test_dataset_options_keep_training_and_evaluation_apart(capsys: pytest.CaptureFixture[str]) -> None:
    printed = {}
    for part in ("training", "evaluation"):
        main(["dataset-options", part, "--training", str(FROZEN)])
        printed[part] = capsys.readouterr().out.split()
    assert "--recorded=training" in printed["training"] and "--recorded=held-out" in printed["evaluation"]
    assert not any(option.startswith("--from") for option in printed["training"])
    shared = [option for option in printed["training"] if option in printed["evaluation"]]
    assert {option.split("=")[0] for option in shared} == {"--seed", "--split-seed", "--recorded-share", "--algorithms"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("recorded_share = 0.2", "recorded_share = 2", "recorded_share is 2; allowed: 0 to 1"),
        ("recorded_share = 0.2", "", "recorded_share is missing"),
        ("split_seed = 1", "split_sed = 1", "split_seed is missing"),
        ("loss_weight = 5.0", "loss_weight = -1", "utility.loss_weight is -1; allowed: 0 to 100"),
        ("rtsp = 1.0", "", "utility.delay_exponent.rtsp is missing"),
        ("evaluation_from = 2000", "evaluation_from = 100", "the paths are held out"),
        ("seed = 1\nsplit", "seed = 'a'\nsplit", "seed is a; allowed: a whole number"),
    ],
)
def test_invalid_training_names_the_key(tmp_path: Path, old: str, new: str, problem: str) -> None:
    text = FROZEN.read_text()
    assert old in text
    file = tmp_path / "training.toml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(training.InvalidTraining, match=problem):
        training.load(file)
