"""Where episodes are read and summed up: SQL that DuckDB and Spark both speak.

DuckDB does for what one machine holds. Spark is for more: the queries are the same, and so is what comes of
them (tests/test_engines.py).
"""

from collections.abc import Sequence
from typing import Protocol

import duckdb
import pyarrow as pa


class Engine(Protocol):
    """Answers queries about the view `episodes`."""

    def sql(self, query: str) -> pa.Table:
        """The rows of a query, in any order unless it says which."""


class DuckDb:
    """Within this process."""

    def __init__(self, files: Sequence[str]) -> None:
        self._database = duckdb.connect()
        # The list is a literal: a view takes no parameters.
        listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
        self._database.execute(f"CREATE VIEW episodes AS SELECT * FROM read_parquet([{listed}], union_by_name = true)")

    def sql(self, query: str) -> pa.Table:
        return self._database.sql(query).to_arrow_table()


class Spark:
    """On a cluster, or with `local[N]` on N threads of this machine."""

    def __init__(self, files: Sequence[str], master: str) -> None:
        # Nobody needs it who has no cluster: it is large, and wants Java.
        from pyspark.sql import SparkSession

        self._session = (
            SparkSession.builder.master(master)
            .appName("millrace-learner")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "8")
            .getOrCreate()
        )
        self._session.read.parquet(*files).createOrReplaceTempView("episodes")

    def sql(self, query: str) -> pa.Table:
        return self._session.sql(query).toArrow()

    def close(self) -> None:
        """Ends the session."""
        self._session.stop()
