"""From syntax to logical nodes: names, types, joins, groups, subqueries."""
