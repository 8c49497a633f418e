"""Streams as users see them: elements, batches of elements, histories, and the checks on them."""
