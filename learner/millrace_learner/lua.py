"""Trees as rules that a person can read, change and test."""

from millrace_learner.queries import KNOWN_BYTES, SETTLED_ROUNDS, SETTLED_S
from millrace_learner.tree import Leaf, Node, Split, overall

# As in `queries.SAMPLES`; what is divided by is not zero.
UNKNOWN = (
    f"flow.delivered_bytes < {KNOWN_BYTES} or flow.recent_min_rtt_ms == 0 or flow.max_delivery_mbps == 0",
    f"or flow.age_s < {SETTLED_S:g} or flow.age_s * 1000 < {SETTLED_ROUNDS} * flow.recent_min_rtt_ms",
)

KEEP = (
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


def rules(trees: dict[str, Node], evidence: list[str]) -> str:
    """A file of rules: a function for each class, with what speaks for each answer beside it."""
    lines = [f"-- {line}".rstrip() for line in evidence]
    lines += ["", *KEEP, ""]
    for of_class, tree in sorted(trees.items()):
        lines += [f"local function {of_class}(flow)", *_node(tree, 1), "end", ""]
    lines += ["-- The best everywhere, with which a connection begins.", "local first = {"]
    for of_class, tree in sorted(trees.items()):
        leaf = overall(tree)
        lines += [f"  -- {_shares(leaf)}", f'  {of_class} = "{leaf.algorithm}",']
    lines += [
        "}",
        "",
        "local by_class = { " + ", ".join(f"{name} = {name}" for name in sorted(trees)) + " }",
        "",
        "function select(flow)",
        f"  if {UNKNOWN[0]}",
        f"    {UNKNOWN[1]} then",
        '    return first[flow.class], "learned: best everywhere"',
        "  end",
        "  local decide = by_class[flow.class]",
        "  if decide then",
        "    return decide(flow)",
        "  end",
        "end",
        "",
        "function test_there_is_an_answer_for_every_class()",
        "  for class in pairs(by_class) do",
        '    assert(type(select(flow { class = class })) == "string", class)',
        "    local known = { class = class, age_s = 20, delivered_bytes = 1e6 }",
        "    known.recent_min_rtt_ms, known.max_delivery_mbps = 40, 8",
        '    assert(type(select(flow(known))) == "string", class)',
        "  end",
        "end",
        "",
        "function test_others_are_left_alone()",
        '  local known = { class = "another", age_s = 20, delivered_bytes = 1e6 }',
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
    # What is yes or no has its threshold in between, and is no below it.
    if "==" in split.feature.lua:
        return split.feature.lua.replace("==", "~=")
    return f"{split.feature.lua} <= {split.threshold:.{split.feature.digits}g}"


def _leaf(leaf: Leaf, indent: str) -> list[str]:
    names = ", ".join(f'"{name}"' for name in (leaf.algorithm, *leaf.as_good))
    return [
        f"{indent}-- {100 * leaf.weight:.1f} % of the paths: {_shares(leaf)}",
        f"{indent}return best(flow, {names})",
    ]


def _shares(leaf: Leaf) -> str:
    shown = [(name, leaf.shares[name]) for name in leaf.shares if name in (leaf.algorithm, *leaf.as_good)]
    shown += [item for item in leaf.shares.items() if item not in shown][: max(0, 2 - len(shown))]
    return ", ".join(f"{name} {share:.2f}" for name, share in shown)
