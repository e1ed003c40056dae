"""The commands of `fedleak`, a module a group; they import what they need once they run, so that help is quick."""
