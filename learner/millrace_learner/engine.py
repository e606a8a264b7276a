"""Engines that read and aggregate episodes, in SQL that DuckDB and Spark share.

DuckDB is for data that fits on one machine, Spark for more data. Both give the same results (tests/test_engines.py).
"""

from collections.abc import Sequence
from typing import Protocol

import duckdb
import pyarrow as pa


class Engine(Protocol):
    """Answers queries about the view `episodes`."""

    def sql(self, query: str) -> pa.Table:
        """Returns the rows of a query; their order is undefined without ORDER BY."""


class DuckDb:
    """DuckDB within this process."""

    def __init__(self, files: Sequence[str]) -> None:
        self._database = duckdb.connect()
        # The list is a literal: a view takes no parameters.
        listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
        self._database.execute(f"CREATE VIEW episodes AS SELECT * FROM read_parquet([{listed}], union_by_name = true)")

    def sql(self, query: str) -> pa.Table:
        return self._database.sql(query).to_arrow_table()


class Spark:
    """Spark on a cluster, or with `local[N]` on N threads of this machine."""

    def __init__(self, files: Sequence[str], master: str) -> None:
        # Imported on use: pyspark is large and needs Java.
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
