"""Runs that go on: inputs that grow, steps that can be repeated, states, neighbours."""
