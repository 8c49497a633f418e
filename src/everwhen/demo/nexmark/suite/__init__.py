"""NEXMark as other systems run it: people, auctions and bids with all their columns, and the queries q0 to q23.

`streams` makes the data, `texts` has the declarations and the queries.
"""
