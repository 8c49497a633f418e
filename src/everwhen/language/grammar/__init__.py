"""From text to syntax: tokens with places, a cursor over them, one module per part of the grammar."""
