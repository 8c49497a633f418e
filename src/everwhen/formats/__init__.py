"""Files of elements or plain rows: JSON lines, Parquet, CSV."""
