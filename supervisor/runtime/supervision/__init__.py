"""Fleet, module, worker: who runs, who serves a call, and what follows from an end."""
