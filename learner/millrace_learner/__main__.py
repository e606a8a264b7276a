"""`millrace-learner learn` and `evaluate`."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from millrace_learner import evaluate, lua, queries, tree, utility
from millrace_learner.engine import DuckDb, Engine, Spark

CLASSES = ("bulk", "dash", "rtsp")


def files_of(given: Sequence[str]) -> list[str]:
    """Parquet files, and those of directories.

    Raises:
        SystemExit: something is not there, or there is nothing in it.
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
    """The engine for these files; Spark where a master is named."""
    files = files_of(given)
    return closing(Spark(files, spark)) if spark else nullcontext(DuckDb(files))


def learn(options: argparse.Namespace) -> None:
    """Learns rules, but not from paths that are kept away from it."""
    with open_engine(options.episodes, options.spark) as engine:
        if not options.visited:
            found = learnt(engine, options.seed, options.held_out)
        else:
            with open_engine(options.visited, options.spark) as visited:
                found = learnt(engine, options.seed, options.held_out, visited)
    text = lua.rules(*found)
    Path(options.out).write_text(text)
    print("\n".join(found[-1]))
    print(f"rules: {options.out}")


def learnt(
    engine: Engine, seed: int, held_out: float, visited: Engine | None = None
) -> tuple[dict[str, tree.Node], dict[str, tree.Node], list[str]]:
    """Two trees for each class, for paths that have settled and for new ones, and what speaks for them.

    What a path looks like depends on who drives. So what it looked like while earlier rules drove counts as
    much as what it looked like under each algorithm all along (Ross, Gordon, Bagnell, AISTATS 2011: DAgger).
    """
    counts = queries.overall(engine)
    outcomes, began = engine.sql(queries.OUTCOMES), engine.sql(queries.BEGINNINGS)
    smallest = utility.smallest_rtts(outcomes, began)
    samples = [it.sql(queries.SAMPLES) for it in (engine, visited) if it]
    evidence = [
        "Learned by learner/ (docs/mcc.md#the-rules-learner): change it by hand, or learn anew.",
        f"{counts['episodes']} episodes of {counts['paths']} paths; every path counts alike. Held out, seed {seed}: "
        f"{100 * held_out:.0f} %.",
        "Utility: rate (smallest / mean round trip)^d, d = "
        + ", ".join(f"{utility.DELAY_EXPONENT[name]:g} for {name}" for name in CLASSES)
        + "; of the best algorithm's on the path.",
    ]
    settled: dict[str, tree.Node] = {}
    beginnings: dict[str, tree.Node] = {}

    def keep(place: str) -> bool:
        return not tree.is_held_out(place, seed, held_out)

    for of_class in CLASSES:
        utilities = utility.normalised(outcomes, of_class)
        own = set(samples[0].column("class").to_pylist())
        source = of_class if of_class in own else utility.STANDS_FOR.get(of_class, of_class)
        if source not in own or not utilities.places:
            continue
        asked = [samples[0], *(_renamed(table, of_class, source) for table in samples[1:])]
        settled[of_class] = tree.learn(asked, utilities, source, keep)
        first = utility.normalised(began, of_class)
        if first.places:
            beginnings[of_class] = tree.beginning(first, smallest, source, keep)
    if not settled:
        sys.exit("nothing to learn from: no path has both a known beginning and an outcome")
    return settled, beginnings, evidence


def _renamed(samples: pa.Table, of_class: str, source: str) -> pa.Table:
    """Those of one class, under the name of the class that stands for it."""
    of = samples.filter(pc.equal(samples.column("class"), of_class))
    at = of.column_names.index("class")
    return of.set_column(at, "class", pa.array([source] * len(of), pa.string()))


def judge(options: argparse.Namespace) -> None:
    """Says how runs with rules do beside runs with each algorithm."""
    with open_engine(options.singles, options.spark) as engine:
        singles = engine.sql(queries.JUDGED)
    with open_engine(options.selected, options.spark) as engine:
        selected = engine.sql(queries.JUDGED)
    short = False
    for of_class in CLASSES:
        verdict = evaluate.closed_loop(singles, selected, of_class)
        print("\n".join(verdict.lines()))
        if any(map(evaluate.is_recorded, singles.column("place").to_pylist())):
            recorded = evaluate.closed_loop(singles, selected, of_class, evaluate.is_recorded)
            print("  over recordings:", recorded.lines()[0])
        best = next(iter(verdict.singles.values()))
        short |= verdict.selected < options.at_least or verdict.selected <= best
    if short:
        sys.exit(f"short of {options.at_least} of the oracle, or not better than the best single algorithm")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="millrace-learner", description=__doc__)
    commands = parser.add_subparsers(required=True)
    spark = argparse.ArgumentParser(add_help=False)
    spark.add_argument(
        "--spark", metavar="MASTER", help="sum up with Spark instead of DuckDB: local[2], spark://host:7077"
    )

    one = commands.add_parser("learn", parents=[spark], help="rules from episodes")
    one.add_argument("episodes", nargs="+", help="Parquet files of the telemetry, or directories of them")
    one.add_argument(
        "--visited", nargs="+", metavar="FILE", help="episodes of runs with earlier rules, on the same paths"
    )
    one.add_argument("--out", required=True, help="file for the rules, in Lua")
    one.add_argument("--seed", type=int, default=1, help="which paths are held out [1]")
    one.add_argument(
        "--held-out", type=float, default=0.0, help="share of the paths that is kept away from learning [0]"
    )
    one.set_defaults(run=learn)

    two = commands.add_parser("evaluate", parents=[spark], help="rules against each algorithm, on the same paths")
    two.add_argument("--singles", nargs="+", required=True, help="episodes of runs with each algorithm")
    two.add_argument("--selected", nargs="+", required=True, help="episodes of runs with the rules")
    two.add_argument("--at-least", type=float, default=0.95, help="share of the oracle's utility that is wanted [0.95]")
    two.set_defaults(run=judge)

    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()
