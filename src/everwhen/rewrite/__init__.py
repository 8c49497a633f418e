"""Rewriting: rules that turn a logical plan into an equal one that costs less (Krämer, chapter 10).

`driver.rewrite` applies the rules of `rules.RULES` until none fires; one rule is one file.  Equal means: the same
multiset of rows at every instant, in the same columns.
"""
