"""Comparison of DuckDB and Spark. Needs pyspark and Java: by name in `tests/scripts/learner.sh`."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from test_learner import lossy_and_clean, startups, write

from millrace_learner import lua, queries
from millrace_learner.__main__ import learn_trees
from millrace_learner.engine import Spark

pytest.importorskip("pyspark", reason="pip install -r requirements-spark.txt")


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed; Spark requires it")
def test_spark_and_duckdb_give_the_same_results(tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    live = [row | {"path": None, "min_rtt_ms": 33.0 + row["connection"]} for row in lossy_and_clean(10)]
    duck = write(file, lossy_and_clean() + startups() + live)
    with closing(Spark([str(file)], "local[2]")) as spark:
        for query in (queries.OUTCOMES, queries.STARTUP, queries.FIRST_SECONDS, queries.JUDGED, queries.SAMPLES):
            assert spark.sql(query).to_pylist() == duck.sql(query).to_pylist()
        assert lua.rules(learn_trees(spark, 1, 0.2)) == lua.rules(learn_trees(duck, 1, 0.2))
