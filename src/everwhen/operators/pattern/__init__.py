"""MATCH_RECOGNIZE: rows in order, the automaton, and what matches say."""
