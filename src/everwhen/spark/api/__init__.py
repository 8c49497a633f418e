"""What a user of Spark calls: start, run, handle, session, runs over files."""
