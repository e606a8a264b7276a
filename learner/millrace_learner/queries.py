"""Queries over the episodes.

The simulator identifies each *path*. For recorded connections, a path is a group of connections with similar
properties, within a factor of two.
"""

from millrace_learner.engine import Engine

# Minimum of delivered bytes for a sample of a path.
KNOWN_BYTES = 100_000
# Age from which a path is mature. Before it, rules know only the round trip.
MATURE_S = 9.0
# Round trips from which a path is mature, in addition to its age.
MATURE_ROUNDS = 30

_LIVE_PATH = """
    CONCAT(
        'live rtt 2^', CAST(CAST(FLOOR(LOG2(GREATEST(min_rtt_ms, 1))) AS INT) AS STRING),
        ' ms, rate 2^', CAST(CAST(FLOOR(LOG2(GREATEST(max_delivery_mbps, 0.1))) AS INT) AS STRING),
        ' Mbit/s, loss ', CASE WHEN loss < 0.0005 THEN 'none' WHEN loss < 0.005 THEN 'some'
                               WHEN loss < 0.02 THEN 'much' ELSE 'most' END)
"""

_EPISODES = f"(SELECT *, COALESCE(path, {_LIVE_PATH}) AS place FROM episodes)"


def _outcomes(condition: str) -> str:
    return f"""
    SELECT place, class, algorithm,
        SUM(rate_mbps * active_s) / SUM(active_s) AS rate_mbps,
        SUM(mean_rtt_ms * active_s) / SUM(active_s) AS mean_rtt_ms,
        MIN(min_rtt_ms) AS min_rtt_ms,
        COALESCE(SUM(lost * rate_mbps * active_s) / NULLIF(SUM(rate_mbps * active_s), 0), 0) AS lost,
        SUM(CASE WHEN player_starved THEN lasted_s ELSE 0.0 END) / SUM(lasted_s) AS starved,
        SUM(active_s) AS seconds,
        COUNT(*) AS episodes
    FROM {_EPISODES}
    WHERE {condition} AND active_s > 0 AND min_rtt_ms > 0
    GROUP BY place, class, algorithm
    ORDER BY place, class, algorithm
"""


OUTCOMES = _outcomes(f"path_age_s >= {MATURE_S}")
"""Outcome of each algorithm per path and class, on mature paths."""

STARTUP = _outcomes(f"(path_age_s < {MATURE_S} OR path_age_s * 1000 < {MATURE_ROUNDS} * min_rtt_ms)")
"""Outcomes before the path is mature."""

FIRST_SECONDS = _outcomes(f"path_age_s < {MATURE_S}")
"""Outcomes of the first seconds, for paths that have changed and may change again soon."""

JUDGED = _outcomes(f"age_s >= {MATURE_S}")
"""Outcomes for the evaluation of rules, by the age of the connection: restarts after false path changes count."""

SAMPLES = f"""
    SELECT place, class, before, recent_min_rtt_ms, recent_max_rtt_ms, smoothed_rtt_ms, rtt_variation_ms,
        mean_delivery_mbps, max_delivery_mbps, loss
    FROM {_EPISODES}
    WHERE delivered_bytes >= {KNOWN_BYTES} AND recent_min_rtt_ms > 0 AND max_delivery_mbps > 0
        AND path_age_s >= {MATURE_S} AND path_age_s * 1000 >= {MATURE_ROUNDS} * recent_min_rtt_ms
    ORDER BY place, class, before, path_age_s, connection
"""
"""States of mature paths in which rules are evaluated, with the algorithm in use."""


def overall(engine: Engine) -> dict[str, int]:
    """Counts the episodes and paths."""
    query = f"SELECT COUNT(*) AS episodes, COUNT(DISTINCT place) AS paths FROM {_EPISODES}"
    return engine.sql(query).to_pylist()[0]
