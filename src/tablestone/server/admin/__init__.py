"""The admin address: what an operator asks a server, answered by a process of its own beside the workers."""
