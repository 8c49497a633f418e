"""Plans at work in one process: sources, the dataflow of operators, runs over finite inputs."""
