"""Programs that use perdure, each in a directory of its own with a README."""
