"""A fake GPU driver: two small C libraries on one shared file."""
