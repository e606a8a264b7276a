"""Tests with synthetic episodes whose best algorithm is known."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_learner import evaluate, lua, queries, tree, utility
from millrace_learner.__main__ import learn_trees, main
from millrace_learner.engine import DuckDb


def episode(number: int, algorithm: str, rate: float, rtt: float, **others) -> dict:
    """A row of a simulated path with an age of twenty seconds."""
    path = {"number": number, "rate_mbps": 10.0, "rivals": 0, **others.pop("path", {})}
    row = {
        "path": json.dumps(path),
        "connection": number,
        "class": "bulk",
        "algorithm": algorithm,
        "before": algorithm,
        "age_s": 20.0,
        "path_age_s": 20.0,
        "min_rtt_ms": 40.0,
        "recent_min_rtt_ms": 40.0,
        "recent_max_rtt_ms": 60.0,
        "smoothed_rtt_ms": 45.0,
        "rtt_variation_ms": 2.0,
        "mean_delivery_mbps": 9.0,
        "max_delivery_mbps": 10.0,
        "delivery_mbps": 9.0,
        "loss": 0.0,
        "loss_short": 0.0,
        "delivered_bytes": 1e6,
        "lasted_s": 10.0,
        "active_s": 10.0,
        "rate_mbps": rate,
        "mean_rtt_ms": rtt,
        "lost": 0.0,
        "player_starved": None,
    }
    return row | others


def lossy_and_clean(paths: int = 60) -> list[dict]:
    """CUBIC is best on paths without random loss, BBR on paths with random loss."""
    rows = []
    for number in range(paths):
        is_lossy = number % 2 == 1
        loss = 0.02 if is_lossy else 0.0
        for algorithm, rate in (("cubic", 1.0 if is_lossy else 9.0), ("bbr", 8.0)):
            rows.append(episode(number, algorithm, rate, 45.0, loss=loss))
    return rows


def write(file: Path, rows: list[dict]) -> DuckDb:
    """Writes the rows to a file and returns an engine over it."""
    schema_of_null = {"player_starved": pa.bool_()}
    table = pa.Table.from_pylist(rows)
    for name, kind in schema_of_null.items():
        table = table.set_column(table.column_names.index(name), name, table.column(name).cast(kind))
    pq.write_table(table, file)
    return DuckDb([str(file)])


def test_tree_finds_the_best_algorithm_by_loss(tmp_path: Path) -> None:
    engine = write(tmp_path / "e.parquet", lossy_and_clean())
    learned = learn_trees(engine, seed=1, held_out=0.0)
    trees = learned.mature
    bulk = trees["bulk"]
    assert isinstance(bulk, tree.Split) and bulk.feature.name == "loss"
    assert 0.0 < bulk.threshold < 0.02
    assert (bulk.low.algorithm, bulk.high.algorithm) == ("cubic", "bbr")
    assert bulk.low.shares == {"cubic": pytest.approx(1.0), "bbr": pytest.approx(8 / 9)}
    assert bulk.low.near_ties == ()
    # RTSP without outcomes of its own uses those of downloads, with a higher delay sensitivity.
    assert set(trees) == {"bulk", "rtsp"}
    assert (learned.startup, learned.moved) == ({}, {}), "no outcomes of the first seconds"
    assert "120 episodes of 60 paths" in " ".join(learned.evidence)


def test_near_ties_are_kept(tmp_path: Path) -> None:
    rows = [episode(1, "cubic", 9.0, 45.0), episode(1, "bbr", 8.9, 45.0), episode(1, "reno", 8.0, 45.0)]
    learned = learn_trees(write(tmp_path / "e.parquet", rows), seed=1, held_out=0.0)
    bulk = learned.mature["bulk"]
    assert isinstance(bulk, tree.Leaf) and (bulk.algorithm, bulk.near_ties) == ("cubic", ("bbr",))
    assert 'return best(flow, "cubic", "bbr")' in lua.rules(learned)


def test_small_gain_keeps_the_default_algorithm(tmp_path: Path) -> None:
    rows = lossy_and_clean()
    for row in rows:
        if row["algorithm"] == "cubic" and row["loss"] == 0.0:
            row["rate_mbps"] = 8.1
    trees = learn_trees(write(tmp_path / "e.parquet", rows), seed=1, held_out=0.0).mature
    assert isinstance(trees["bulk"], tree.Leaf) and trees["bulk"].algorithm == "bbr"


def startups(paths: int = 60) -> list[dict]:
    """On new paths, BBR is better with short round trips and Iris with long ones."""
    rows = []
    for number in range(paths):
        is_long = number % 2 == 1
        rtt = 600.0 if is_long else 20.0
        for algorithm, rate in (("bbr", 3.0 if is_long else 9.0), ("iris-min", 7.0)):
            rows.append(episode(number, algorithm, rate, rtt, min_rtt_ms=rtt, age_s=0.1, path_age_s=0.1))
    return rows


def test_startup_tree_splits_by_round_trip(tmp_path: Path) -> None:
    rows = startups() + [episode(number, name, 9.0, 45.0) for number in range(60) for name in ("bbr", "iris-min")]
    # Start-up lasts thirty round trips, which are long here, and BBR is better in the later part.
    rows += [
        row | {"age_s": 12.0, "path_age_s": 12.0, "rate_mbps": 9.0 if row["algorithm"] == "bbr" else 1.0}
        for row in startups()
        if row["min_rtt_ms"] > 300
    ]
    learned = learn_trees(write(tmp_path / "e.parquet", rows), seed=1, held_out=0.0)
    moved, startup = learned.moved["bulk"], learned.startup["bulk"]
    assert isinstance(moved, tree.Split) and moved.feature.name == "rtt_ms" and 20 < moved.threshold < 600
    assert (moved.low.algorithm, moved.high.algorithm) == ("bbr", "iris-min")
    assert isinstance(startup, tree.Leaf) and startup.algorithm == "bbr"


def test_tree_does_not_split_by_losses_of_unsuitable_algorithms(tmp_path: Path) -> None:
    # Loss determines the best algorithm, jitter only how far CUBIC is behind.
    rows = []
    for number in range(60):
        is_lossy, is_jittery = number % 2 == 1, number % 3 == 0
        seen = {"loss": 0.02 if is_lossy else 0.0, "rtt_variation_ms": 20.0 if is_jittery else 2.0}
        best = 9.0 if is_lossy else 7.0
        for name, rate in (("bbr", 8.0), ("iris-min", best), ("cubic", 4.0 if is_jittery else 7.9)):
            rows.append(episode(number, name, rate, 45.0, **seen))
    trees = learn_trees(write(tmp_path / "e.parquet", rows), seed=1, held_out=0.0).mature
    assert isinstance(trees["bulk"], tree.Split) and trees["bulk"].feature.name == "loss"


def test_utility_depends_on_delay_per_class_and_on_fair_share(tmp_path: Path) -> None:
    rows = [episode(1, "a", 10.0, 400.0), episode(1, "b", 8.0, 40.0)]
    crowded = {"path": {"rivals": 1}}
    rows += [episode(2, "a", 9.0, 40.0, **crowded), episode(2, "b", 5.0, 40.0, **crowded)]
    outcomes = write(tmp_path / "e.parquet", rows).sql(queries.OUTCOMES)
    bulk = utility.normalised(outcomes, "bulk")
    rtsp = utility.normalised(outcomes, "rtsp")
    assert bulk.algorithms == ["a", "b"]
    alone, shared = (bulk.row_of()[place] for place in sorted(bulk.places, key=lambda it: json.loads(it)["number"]))
    assert bulk.value[alone] == pytest.approx([1.0, 1.0], abs=0.02)
    assert rtsp.value[alone] == pytest.approx([0.125, 1.0])
    # The rate above half of the link does not count.
    assert bulk.value[shared] == pytest.approx([1.0, 1.0])


def test_starvation_lowers_utility(tmp_path: Path) -> None:
    rows = [
        episode(1, "a", 10.0, 40.0, **{"class": "dash"}, player_starved=True),
        episode(1, "a", 10.0, 40.0, **{"class": "dash"}, player_starved=False),
        episode(1, "b", 8.0, 40.0, **{"class": "dash"}, player_starved=False),
    ]
    outcomes = write(tmp_path / "e.parquet", rows).sql(queries.OUTCOMES)
    assert utility.normalised(outcomes, "dash").value[0] == pytest.approx([5 / 8, 1.0])


def test_similar_recorded_paths_form_one_path(tmp_path: Path) -> None:
    rows = [episode(1, "a", 10.0, 40.0, min_rtt_ms=33.0), episode(2, "b", 8.0, 40.0, min_rtt_ms=60.0)]
    rows += [episode(3, "b", 8.0, 90.0, min_rtt_ms=70.0)]
    outcomes = write(tmp_path / "e.parquet", [row | {"path": None} for row in rows] + [episode(9, "a", 1, 40)])
    places = {row["place"] for row in outcomes.sql(queries.OUTCOMES).to_pylist() if row["place"].startswith("live")}
    assert places == {f"live rtt 2^{power} ms, rate 2^3 Mbit/s, loss none" for power in (5, 6)}


def test_held_out_paths_are_excluded_from_learning(tmp_path: Path) -> None:
    places = [json.dumps({"number": number}) for number in range(1000)]
    out = [place for place in places if tree.is_held_out(place, seed=3, share=0.3)]
    assert 250 < len(out) < 350
    assert out == [place for place in places if tree.is_held_out(place, seed=3, share=0.3)]
    engine = write(tmp_path / "e.parquet", lossy_and_clean())
    with pytest.raises(ValueError, match="nothing to learn from"):
        learn_trees(engine, seed=1, held_out=1.0)


def test_excess_loss_lowers_the_utility_and_random_loss_does_not(tmp_path: Path) -> None:
    rows = []
    for number, random in ((0, 0.0), (1, 0.03)):
        for algorithm, rate, excess in (("cubic", 8.0, 0.0), ("vivace-loss", 9.0, 0.04)):
            row = episode(number, algorithm, rate, 40.0, path={"loss": random}, lost=random + excess)
            rows.append(row)
    outcomes = write(tmp_path / "e.parquet", rows).sql(queries.OUTCOMES)
    without = utility.normalised(outcomes, "bulk")
    assert without.value == pytest.approx(np.array([[8 / 9, 1.0], [8 / 9, 1.0]]))
    with_loss = utility.normalised(outcomes, "bulk", utility.UtilitySettings(loss_weight=5.0))
    # 9 less a fifth is 7.2.
    assert with_loss.value == pytest.approx(np.array([[1.0, 0.9], [1.0, 0.9]]))


def test_random_loss_of_a_live_path_is_the_smallest_that_was_observed(tmp_path: Path) -> None:
    rows = [episode(0, "cubic", 8.0, 40.0, lost=0.02), episode(0, "bbr", 8.0, 40.0, lost=0.06)]
    live = [row | {"path": None} for row in rows]
    outcomes = write(tmp_path / "e.parquet", live).sql(queries.OUTCOMES)
    assert list(utility.random_losses(outcomes).values()) == [pytest.approx(0.02)]


def test_closed_loop_compares_rules_with_each_algorithm(tmp_path: Path) -> None:
    singles = write(tmp_path / "s.parquet", lossy_and_clean()).sql(queries.JUDGED)
    good = [row for row in lossy_and_clean() if (row["algorithm"] == "bbr") == (row["loss"] > 0)]
    # On the first path, half of the time with the other algorithm.
    selected = [*good, episode(0, "bbr", 3.0, 45.0)]
    verdict = evaluate.closed_loop(singles, write(tmp_path / "m.parquet", selected).sql(queries.JUDGED), "bulk")
    assert verdict.paths == 60
    assert verdict.selected == pytest.approx((59 + 6 / 9) / 60)
    assert list(verdict.singles) == ["bbr", "cubic"]
    assert verdict.singles["bbr"] == pytest.approx((1 + 8 / 9) / 2)


def test_best_single_algorithm_is_the_best_mean_over_classes() -> None:
    verdicts = [
        evaluate.Verdict("bulk", 1, 0.9, {"a": 0.9, "b": 0.8, "c": 0.99}),
        evaluate.Verdict("rtsp", 1, 0.8, {"b": 0.7, "a": 0.4}),
    ]
    assert evaluate.together(verdicts).lines() == [
        "all classes: 1 paths; selected 0.8500 of the oracle, best single (b) 0.7500",
        "  b 0.750, a 0.650",
    ]


def test_shortfalls_lists_missed_target_and_better_single_algorithm() -> None:
    bulk = evaluate.Verdict("bulk", 1, 0.97, {"a": 0.9, "b": 0.8})
    rtsp = evaluate.Verdict("rtsp", 1, 0.93, {"b": 0.92, "a": 0.4})
    assert evaluate.shortfalls([bulk, rtsp], 0.95) == []
    assert evaluate.shortfalls([bulk, rtsp], 0.96) == ["all classes: 0.9500 of the oracle, 0.96 required"]
    behind = evaluate.Verdict("rtsp", 1, 0.93, {"b": 0.93, "a": 0.4})
    assert evaluate.shortfalls([bulk, behind], 0.95) == ["rtsp: 0.9300 of the oracle, b alone 0.9300"]


def test_learn_reports_missing_files_and_writes_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="no Parquet file there"):
        main(["learn", str(tmp_path), "--out", str(tmp_path / "r.lua")])
    write(tmp_path / "e.parquet", lossy_and_clean())
    main(["learn", str(tmp_path), "--out", str(tmp_path / "r.lua")])
    text = (tmp_path / "r.lua").read_text()
    assert "if flow.loss <= 0.01 then" in text and 'return best(flow, "cubic")' in text
    assert "rules: " in capsys.readouterr().out


def test_server_accepts_learned_rules(tmp_path: Path) -> None:
    """Needs `make build`."""
    server = Path(__file__).resolve().parents[2] / "target/release/millrace-server"
    if not server.exists():
        pytest.skip(f"no {server}: make build")
    write(tmp_path / "e.parquet", lossy_and_clean() + startups())
    rules = str(tmp_path / "r.lua")
    main(["learn", str(tmp_path), "--out", rules])
    checked = subprocess.run([server, "rules", "check", rules], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked
    assert "4 of 4 tests passed" in checked.stdout
    known = {"loss": 0.03, "recent_min_rtt_ms": 40, "max_delivery_mbps": 8, "delivered_bytes": 1e6, "path_age_s": 20}
    young = {"path_age_s": 5, "age_s": 5, "recent_min_rtt_ms": 600}
    moved = young | {"age_s": 50, "recent_min_rtt_ms": 20}
    for others, answer in (({}, "bbr: learned"), (young, "iris-min: learned"), (moved, "bbr: learned")):
        flow = json.dumps(known | others)
        explained = subprocess.run(
            [server, "rules", "explain", rules, flow], capture_output=True, text=True, check=True
        )
        assert explained.stdout.strip() == answer
