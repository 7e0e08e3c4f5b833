"""The broker: topics, partitions and producers over one SingleWal, served to the gateway over the mesh."""
