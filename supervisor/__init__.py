"""The stdiod daemon: policy, runtime, kernel, faces and command line, each a ring of its own."""
