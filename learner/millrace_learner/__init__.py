"""The Rules Learner: from what came of each algorithm (telemetry, docs/mcc.md) to rules in Lua.

MCC leaves it to future work (Section 6): mine what was recorded for rules, evaluate them, hand them to the
Selectors.
"""
