"""The Rules Learner: learns rules in Lua from the outcomes of each algorithm (telemetry, docs/research/mcc.md).

MCC names it as future work (Section 6): derive rules from recorded data, evaluate them, and deploy them to the
Selectors.
"""
