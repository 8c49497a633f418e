"""The temporal model: ticks, lifetimes, elements, batches, histories.  Imports nothing above itself."""
