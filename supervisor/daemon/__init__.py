"""The process around the kernel: serving, signals, configuration, service manager, logging."""
