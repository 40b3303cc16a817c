"""The messages and services of the admin API, generated from its proto files."""
