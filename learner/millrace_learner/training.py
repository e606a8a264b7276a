"""The settings of a training, from a file that is committed before the training."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from millrace_learner.utility import UtilitySettings

CLASSES = ("bulk", "dash", "rtsp")


class InvalidTraining(ValueError):
    """A training file that is not valid; the message names the key."""


@dataclass(frozen=True)
class Training:
    """What a training is given."""

    seed: int
    split_seed: int
    training_paths: int
    evaluation_from: int
    evaluation_paths: int
    evaluation_repeat: int
    # Share of the paths over a recorded link.
    recorded_share: float
    candidates: tuple[str, ...]
    utility: UtilitySettings

    def dataset_options(self, part: str) -> list[str]:
        """The options of `millrace-lab dataset` for the training set or the paths of the evaluation."""
        options = [
            f"--seed={self.seed}",
            f"--split-seed={self.split_seed}",
            f"--recorded-share={self.recorded_share}",
            f"--algorithms={','.join(self.candidates)}",
        ]
        if part == "training":
            return [*options, f"--paths={self.training_paths}", "--recorded=training"]
        return [
            *options,
            f"--from={self.evaluation_from}",
            f"--paths={self.evaluation_paths}",
            f"--repeat={self.evaluation_repeat}",
            "--recorded=held-out",
        ]


def load(file: Path) -> Training:
    """Reads a training file.

    Raises:
        InvalidTraining: the file is not TOML, a key is missing or unknown, or a value is out of range.
    """
    try:
        table = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidTraining(f"{file}: {error}") from error
    names = [field.name for field in fields(Training)]
    _check_keys(file, table, names)
    settings = table["utility"]
    _check_keys(file, settings, ["delay_exponent", "loss_weight"], "utility.")
    _check_keys(file, settings["delay_exponent"], list(CLASSES), "utility.delay_exponent.")
    for name in names[:6]:
        _check(file, name, table[name], isinstance(table[name], int) and table[name] >= 0, "a whole number, from 0")
    share = table["recorded_share"]
    _check(file, "recorded_share", share, 0 <= share <= 1, "0 to 1")
    candidates = table["candidates"]
    _check(file, "candidates", candidates, len(candidates) >= 2, "at least two algorithms")
    weight = settings["loss_weight"]
    _check(file, "utility.loss_weight", weight, 0 <= weight <= 100, "0 to 100")
    held_out_from = table["evaluation_from"]
    is_apart = held_out_from >= table["training_paths"]
    _check(file, "evaluation_from", held_out_from, is_apart, "at least training_paths: the paths are held out")
    utility = UtilitySettings({name: float(value) for name, value in settings["delay_exponent"].items()}, float(weight))
    return Training(**{**table, "candidates": tuple(candidates), "utility": utility})


def _check_keys(file: Path, table: Mapping, expected: list[str], prefix: str = "") -> None:
    for name in expected:
        if name not in table:
            raise InvalidTraining(f"{file}: {prefix}{name} is missing")
    for name in table:
        if name not in expected:
            raise InvalidTraining(f"{file}: {prefix}{name} is unknown; known: {', '.join(expected)}")


def _check(file: Path, name: str, value: object, is_valid: bool, allowed: str) -> None:
    if not is_valid:
        raise InvalidTraining(f"{file}: {name} is {value}; allowed: {allowed}")
