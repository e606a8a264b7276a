"""What is asked of the episodes.

A *path* is what the simulator calls one. Of recorded connections nobody knows that: there it is a class of
paths, those that look alike to within a factor of two.
"""

from millrace_learner.engine import Engine

# Before so much is delivered, rules are not asked: nothing is known of the path.
KNOWN_BYTES = 100_000
# What comes earlier is start-up, for which rules know nothing but the round trip.
SETTLED_S = 9.0

# And so many round trips: what a path looks like meanwhile is no guide.
SETTLED_ROUNDS = 30

_LIVE_PATH = """
    CONCAT(
        'live rtt 2^', CAST(CAST(FLOOR(LOG2(GREATEST(min_rtt_ms, 1))) AS INT) AS STRING),
        ' ms, rate 2^', CAST(CAST(FLOOR(LOG2(GREATEST(max_delivery_mbps, 0.1))) AS INT) AS STRING),
        ' Mbit/s, loss ', CASE WHEN loss < 0.0005 THEN 'none' WHEN loss < 0.005 THEN 'some'
                               WHEN loss < 0.02 THEN 'much' ELSE 'most' END)
"""

_EPISODES = f"(SELECT *, COALESCE(path, {_LIVE_PATH}) AS place FROM episodes)"


def _outcomes(which: str) -> str:
    return f"""
    SELECT place, class, algorithm,
        SUM(rate_mbps * active_s) / SUM(active_s) AS rate_mbps,
        SUM(mean_rtt_ms * active_s) / SUM(active_s) AS mean_rtt_ms,
        MIN(min_rtt_ms) AS min_rtt_ms,
        SUM(CASE WHEN player_starved THEN lasted_s ELSE 0.0 END) / SUM(lasted_s) AS starved,
        SUM(active_s) AS seconds,
        COUNT(*) AS episodes
    FROM {_EPISODES}
    WHERE {which} AND active_s > 0 AND min_rtt_ms > 0
    GROUP BY place, class, algorithm
    ORDER BY place, class, algorithm
"""


OUTCOMES = _outcomes(f"path_age_s >= {SETTLED_S}")
"""What came of each algorithm on each path, for each class of flows, once it had settled."""

BEGINNINGS = _outcomes(f"(path_age_s < {SETTLED_S} OR path_age_s * 1000 < {SETTLED_ROUNDS} * min_rtt_ms)")
"""The same until then."""

FIRST_SECONDS = _outcomes(f"path_age_s < {SETTLED_S}")
"""The same at once: what counts where a path has changed, and may do so again soon."""

JUDGED = _outcomes(f"age_s >= {SETTLED_S}")
"""By what rules are judged: whoever takes a path for another one begins anew, and that counts."""

SAMPLES = f"""
    SELECT place, class, before, recent_min_rtt_ms, recent_max_rtt_ms, smoothed_rtt_ms, rtt_variation_ms,
        mean_delivery_mbps, max_delivery_mbps, loss
    FROM {_EPISODES}
    WHERE delivered_bytes >= {KNOWN_BYTES} AND recent_min_rtt_ms > 0 AND max_delivery_mbps > 0
        AND path_age_s >= {SETTLED_S} AND path_age_s * 1000 >= {SETTLED_ROUNDS} * recent_min_rtt_ms
    ORDER BY place, class, before, path_age_s, connection
"""
"""What paths looked like when rules were asked, and under which algorithm."""


def overall(engine: Engine) -> dict[str, int]:
    """How much there is to learn from."""
    query = f"SELECT COUNT(*) AS episodes, COUNT(DISTINCT place) AS paths FROM {_EPISODES}"
    return engine.sql(query).to_pylist()[0]
