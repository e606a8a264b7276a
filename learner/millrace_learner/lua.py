"""Writes trees as readable Lua rules with tests."""

from millrace_learner.queries import KNOWN_BYTES, MATURE_ROUNDS, MATURE_S
from millrace_learner.tree import Leaf, LearnedTrees, Node, Split

# Condition for the trees of a new path: the opposite of that in `queries.SAMPLES`. It also keeps divisors above zero.
NOT_MATURE = (
    f"flow.delivered_bytes < {KNOWN_BYTES} or flow.recent_min_rtt_ms == 0 or flow.max_delivery_mbps == 0",
    f"or flow.path_age_s < {MATURE_S:g} or flow.path_age_s * 1000 < {MATURE_ROUNDS} * flow.recent_min_rtt_ms",
)
# Ratio of round trips beyond which a path is of another kind, as in PathModel.
DISTINCT_PATH_RATIO = 4.0
# Players with less media in their buffer get the rules of live streams (docs/research/mcc.md).
SHORT_BUFFER_S = 10.0

BEST_FUNCTION = (
    "-- A change costs something: what drives stays if it is among those that are nearly as good as the best.",
    "local function best(flow, name, ...)",
    "  for _, other in ipairs({ ... }) do",
    "    if flow.algorithm == other then",
    '      return other, "learned: nearly as good as " .. name',
    "    end",
    "  end",
    '  return name, "learned"',
    "end",
)


def rules(learned: LearnedTrees) -> str:
    """Writes a rules file: functions per class, with the evidence for each answer."""
    lines = [f"-- {line}".rstrip() for line in learned.evidence]
    lines += ["", *BEST_FUNCTION, ""]
    for name, about, trees in (
        ("settled", "On a path that has settled.", learned.mature),
        ("beginning", "On the first one, while nothing is known but its round trip.", learned.startup),
        ("moved", "The same on a later one: a path that has changed may do so again soon.", learned.moved),
    ):
        lines += [f"-- {about}", f"local {name} = {{}}", ""]
        for of_class, tree in sorted(trees.items()):
            lines += [f"function {name}.{of_class}(flow)", *_node(tree, 1), "end", ""]
    lines += [
        "-- A player whose buffer is short has no more to wait with than a live stream; and what a burst makes it",
        "-- ask for then it has to wait for when the burst is over. What its buffer holds, it says itself (CMCD).",
        "local function class_of(flow)",
        "  local buffer_s = flow.player and flow.player.buffer_s",
        f'  if flow.class == "dash" and buffer_s and buffer_s < {SHORT_BUFFER_S:g} then',
        '    return "rtsp"',
        "  end",
        "  return flow.class",
        "end",
        "",
        "function select(flow)",
        "  local class = class_of(flow)",
        "  local decide = settled[class]",
        f"  if {NOT_MATURE[0]}",
        f"    {NOT_MATURE[1]} then",
        "    -- Where the round trip has moved, but not far, the rate goes on, and so does what drives.",
        f"    if flow.rtt_ratio >= {1 / DISTINCT_PATH_RATIO:g} and flow.rtt_ratio <= {DISTINCT_PATH_RATIO:g} then",
        "      return nil",
        "    end",
        "    local trees = flow.path_age_s < flow.age_s and moved or beginning",
        "    decide = trees[class]",
        "  end",
        "  if decide then",
        "    return decide(flow)",
        "  end",
        "end",
        "",
        "function test_there_is_an_answer_for_every_class()",
        "  for class in pairs(settled) do",
        '    assert(type(select(flow { class = class })) == "string", class)',
        "    local known = { class = class, path_age_s = 20, delivered_bytes = 1e6 }",
        "    known.recent_min_rtt_ms, known.max_delivery_mbps = 40, 8",
        '    assert(type(select(flow(known))) == "string", class)',
        "  end",
        "end",
        "",
        "function test_who_drives_stays_where_the_round_trip_moves()",
        "  local path = { delivered_bytes = 1e6, age_s = 20, path_age_s = 1, max_delivery_mbps = 8 }",
        "  path.recent_min_rtt_ms = 700",
        "  for class in pairs(settled) do",
        "    path.class = class",
        "    path.rtt_ratio = 2",
        "    assert(select(flow(path)) == nil, class)",
        "    path.rtt_ratio = 20",
        '    assert(type(select(flow(path))) == "string", class)',
        "  end",
        "end",
        "",
        "function test_a_player_with_a_short_buffer_is_as_a_stream()",
        "  for _, path_age_s in ipairs { 1, 20 } do",
        "    local path = { path_age_s = path_age_s, age_s = path_age_s, delivered_bytes = 1e6 }",
        "    path.recent_min_rtt_ms, path.max_delivery_mbps = 40, 8",
        "    local function with(class, player)",
        "      path.class, path.player = class, player",
        "      return (select(flow(path)))",
        "    end",
        f'    assert(with("dash", {{ buffer_s = {SHORT_BUFFER_S - 1:g} }}) == with("rtsp"))',
        f'    assert(with("dash", {{ buffer_s = {SHORT_BUFFER_S + 1:g} }}) == with("dash"))',
        '    assert(with("dash", { bitrate_kbps = 620 }) == with("dash"))',
        '    assert(with("bulk", { buffer_s = 1 }) == with("bulk"))',
        "  end",
        "end",
        "",
        "function test_others_are_left_alone()",
        '  local known = { class = "another", path_age_s = 20, delivered_bytes = 1e6 }',
        "  known.recent_min_rtt_ms, known.max_delivery_mbps = 40, 8",
        "  assert(select(flow(known)) == nil)",
        "end",
    ]
    return "\n".join(lines) + "\n"


def _node(node: Node, depth: int) -> list[str]:
    indent = "  " * depth
    if isinstance(node, Leaf):
        return _leaf(node, indent)
    lines = [f"{indent}if {_condition(node)} then", *_node(node.low, depth + 1)]
    return [*lines, f"{indent}else", *_node(node.high, depth + 1), f"{indent}end"]


def _condition(split: Split) -> str:
    # Features that are 0 or 1 have their threshold between the two.
    if "==" in split.feature.lua:
        return split.feature.lua.replace("==", "~=")
    return f"{split.feature.lua} <= {split.threshold:.{split.feature.digits}g}"


def _leaf(leaf: Leaf, indent: str) -> list[str]:
    names = ", ".join(f'"{name}"' for name in (leaf.algorithm, *leaf.near_ties))
    return [
        f"{indent}-- {100 * leaf.weight:.1f} % of the paths: {_shares(leaf)}",
        f"{indent}return best(flow, {names})",
    ]


def _shares(leaf: Leaf) -> str:
    shown = [(name, leaf.shares[name]) for name in leaf.shares if name in (leaf.algorithm, *leaf.near_ties)]
    shown += [item for item in leaf.shares.items() if item not in shown][: max(0, 2 - len(shown))]
    return ", ".join(f"{name} {share:.2f}" for name, share in shown)
