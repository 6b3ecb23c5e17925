"""The store daemon: what UM's umestored.xml says, a log file that rolls, and several stores in one
process."""
