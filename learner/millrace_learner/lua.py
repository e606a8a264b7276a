"""Trees as rules that a person can read, change and test."""

from millrace_learner.tree import Leaf, Node, Split


def rules(trees: dict[str, Node], evidence: list[str]) -> str:
    """A file of rules: a function for each class, with what speaks for each answer beside it."""
    lines = [f"-- {line}".rstrip() for line in evidence]
    lines.append("")
    for of_class, tree in sorted(trees.items()):
        lines += [f"local function {of_class}(flow)", *_node(tree, 1), "end", ""]
    lines += [
        "local by_class = { " + ", ".join(f"{name} = {name}" for name in sorted(trees)) + " }",
        "",
        "function select(flow)",
        "  -- Nothing is known of the path yet.",
        "  if flow.min_rtt_ms == 0 or flow.delivered_bytes < 100000 then",
        "    return nil",
        "  end",
        "  local decide = by_class[flow.class]",
        "  if decide then",
        "    return decide(flow)",
        "  end",
        "end",
        "",
        "function test_nothing_is_said_too_early()",
        "  assert(select(flow { min_rtt_ms = 40 }) == nil)",
        "end",
        "",
        "function test_there_is_an_answer_for_every_class()",
        "  for class in pairs(by_class) do",
        "    local path = flow { class = class, min_rtt_ms = 40, smoothed_rtt_ms = 45, delivered_bytes = 1e6 }",
        '    assert(type(select(path)) == "string", class)',
        "  end",
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
    share = f"{100 * leaf.weight:.1f} % of the paths; {leaf.share:.2f} of the best"
    if leaf.runner_up != leaf.algorithm:
        share += f", {leaf.runner_up} {leaf.runner_up_share:.2f}"
    return [f"{indent}-- {share}", f'{indent}return "{leaf.algorithm}", "learned"']
