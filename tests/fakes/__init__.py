"""Stand-ins for services the product talks to; loopback only."""
