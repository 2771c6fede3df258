"""The commands of `tablestone`: a module for each command or group of commands."""
