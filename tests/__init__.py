"""Tests of nbagent."""
