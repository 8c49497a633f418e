"""The continuous query language: SQL with windows over streams (Krämer, chapter 7), from text to logical nodes."""
