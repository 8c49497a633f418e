"""Files that appear whole or not at all, that show damage, on local and remote file systems."""
