"""From logical plans to operators."""
