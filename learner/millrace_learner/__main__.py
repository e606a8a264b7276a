"""`millrace-learner learn` and `evaluate`."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from millrace_learner import evaluate, lua, queries, tree, utility
from millrace_learner.engine import DuckDb, Engine, Spark

CLASSES = ("bulk", "dash", "rtsp")
# Groups of paths with a verdict of their own.
PATH_GROUPS = (
    ("over recordings", evaluate.is_recorded),
    ("of moving paths", evaluate.is_moving),
    ("of paths that stay", lambda place: not evaluate.is_moving(place)),
)


def files_of(given: Sequence[str]) -> list[str]:
    """Lists the given Parquet files, and the Parquet files of the given directories.

    Raises:
        SystemExit: a file is missing, or a directory has no Parquet file.
    """
    found: list[str] = []
    for name in given:
        path = Path(name)
        inside = sorted(path.glob("*.parquet")) if path.is_dir() else [path] if path.is_file() else []
        if not inside:
            sys.exit(f"{name}: no Parquet file there; give files or directories of the telemetry")
        found += map(str, inside)
    return found


def open_engine(given: Sequence[str], spark: str | None):
    """Opens an engine over these files: Spark if a master is given, otherwise DuckDB."""
    files = files_of(given)
    return closing(Spark(files, spark)) if spark else nullcontext(DuckDb(files))


def learn(options: argparse.Namespace) -> None:
    """Learns rules from all paths that are not held out, and writes them."""
    with open_engine(options.episodes, options.spark) as engine:
        learned = learn_trees(engine, options.seed, options.held_out)
    text = lua.rules(learned)
    Path(options.out).write_text(text)
    print("\n".join(learned.evidence))
    print(f"rules: {options.out}")


def learn_trees(engine: Engine, seed: int, held_out: float) -> tree.LearnedTrees:
    """Learns the trees of each class, with their evidence."""
    counts = queries.overall(engine)
    outcomes = engine.sql(queries.OUTCOMES)
    startup, first = engine.sql(queries.STARTUP), engine.sql(queries.FIRST_SECONDS)
    smallest = utility.smallest_rtts(outcomes, startup)
    samples = engine.sql(queries.SAMPLES)
    evidence = [
        "Learned by learner/ (docs/research/mcc.md#rules-learner): change it by hand, or learn anew.",
        f"{counts['episodes']} episodes of {counts['paths']} paths; every path counts alike. Held out, seed {seed}: "
        f"{100 * held_out:.0f} %.",
        "Utility: rate (smallest / mean round trip)^d, d = "
        + ", ".join(f"{utility.DELAY_EXPONENT[name]:g} for {name}" for name in CLASSES)
        + "; of the best algorithm's on the path.",
    ]
    learned = tree.LearnedTrees({}, {}, {}, evidence)

    def keep(place: str) -> bool:
        return not tree.is_held_out(place, seed, held_out)

    for of_class in CLASSES:
        utilities = utility.normalised(outcomes, of_class)
        own = set(samples.column("class").to_pylist())
        source = of_class if of_class in own else utility.STANDS_FOR.get(of_class, of_class)
        if source not in own or not utilities.places:
            continue
        learned.mature[of_class] = tree.learn(samples, utilities, source, keep)
        for trees, table in ((learned.startup, startup), (learned.moved, first)):
            early = utility.normalised(table, of_class)
            if early.places:
                trees[of_class] = tree.learn_startup(early, smallest, source, keep)
    if not learned.mature:
        sys.exit("nothing to learn from: no path has both a known beginning and an outcome")
    return learned


def judge(options: argparse.Namespace) -> None:
    """Compares runs with rules with runs of each algorithm."""
    with open_engine(options.singles, options.spark) as engine:
        singles = engine.sql(queries.JUDGED)
    with open_engine(options.selected, options.spark) as engine:
        selected = engine.sql(queries.JUDGED)
    verdicts = [evaluate.closed_loop(singles, selected, of_class) for of_class in CLASSES]
    for verdict in verdicts:
        print("\n".join(verdict.lines()))
    print("\n".join(evaluate.together(verdicts).lines()))
    places = set(singles.column("place").to_pylist())
    for group, is_member in PATH_GROUPS:
        if 0 < sum(map(is_member, places)) < len(places):
            in_group = [evaluate.closed_loop(singles, selected, of_class, is_member) for of_class in CLASSES]
            print(f"{group}:", *(it.lines()[0] for it in (*in_group, evaluate.together(in_group))), sep="\n  ")
    if short := evaluate.shortfalls(verdicts, options.at_least):
        sys.exit("\n".join(short))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="millrace-learner", description=__doc__)
    commands = parser.add_subparsers(required=True)
    spark = argparse.ArgumentParser(add_help=False)
    spark.add_argument(
        "--spark", metavar="MASTER", help="aggregate with Spark instead of DuckDB: local[2], spark://host:7077"
    )

    one = commands.add_parser("learn", parents=[spark], help="learn rules from episodes")
    one.add_argument("episodes", nargs="+", help="Parquet files of the telemetry, or directories with such files")
    one.add_argument("--out", required=True, help="output file for the rules (Lua)")
    one.add_argument("--seed", type=int, default=1, help="seed that selects the held-out paths [1]")
    one.add_argument(
        "--held-out", type=float, default=0.0, help="share of the paths that is held out from learning [0]"
    )
    one.set_defaults(run=learn)

    two = commands.add_parser("evaluate", parents=[spark], help="compare rules with each algorithm on the same paths")
    two.add_argument("--singles", nargs="+", required=True, help="episodes of the runs with one algorithm each")
    two.add_argument("--selected", nargs="+", required=True, help="episodes of the runs with the rules")
    two.add_argument(
        "--at-least", type=float, default=0.95, help="required share of the oracle's utility over all classes [0.95]"
    )
    two.set_defaults(run=judge)

    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()
