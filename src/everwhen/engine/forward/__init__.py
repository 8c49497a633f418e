"""Fast-forward: the answer before an instant is of no interest any more, so a running plan need not compute it."""
