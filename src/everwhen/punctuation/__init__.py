"""Punctuation about data: patterns, their algebra, tables that travel, stores for lookups, rules for operators."""
