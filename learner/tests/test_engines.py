"""DuckDB and Spark say the same. Needs pyspark and Java: by name in `make learner-test`."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from test_learner import beginnings, lossy_and_clean, write

from millrace_learner import lua, queries
from millrace_learner.__main__ import learnt
from millrace_learner.engine import Spark

pytest.importorskip("pyspark", reason="pip install -r requirements-spark.txt")


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark wants Java")
def test_spark_says_what_duckdb_says(tmp_path: Path) -> None:
    file = tmp_path / "e.parquet"
    live = [row | {"path": None, "min_rtt_ms": 33.0 + row["connection"]} for row in lossy_and_clean(10)]
    duck = write(file, lossy_and_clean() + beginnings() + live)
    with closing(Spark([str(file)], "local[2]")) as spark:
        for query in (queries.OUTCOMES, queries.BEGINNINGS, queries.FIRST_SECONDS, queries.JUDGED, queries.SAMPLES):
            assert spark.sql(query).to_pylist() == duck.sql(query).to_pylist()
        assert lua.rules(learnt(spark, 1, 0.2)) == lua.rules(learnt(duck, 1, 0.2))
