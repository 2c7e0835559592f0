"""Build models from recipes, and read and write model files."""
