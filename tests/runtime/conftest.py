"""The wire fake, and the rules that every conversation with it keeps."""

from tests.fakes.invariants import fake, make_fake, pytest_configure

__all__ = ["fake", "make_fake", "pytest_configure"]
