"""Tables that change, as streams: a row lives from the change that made it until the next one of its key."""
