"""HTTP/1.1: REST, event streams, Module Protocol v1; imported by a daemon that serves it only."""
