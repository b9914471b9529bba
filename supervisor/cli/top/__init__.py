"""Watch a daemon: figures of a time, made of two answers to `status`, on paper or on a screen."""
