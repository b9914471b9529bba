"""The files of modules: descriptors, programs, logs; read, watched, written."""
