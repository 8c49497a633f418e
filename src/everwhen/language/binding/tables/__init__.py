"""Tables that are made in the text: VALUES, UNNEST and LATERAL; and ASOF, which picks one partner of many."""
