"""From a recipe to a model, and from a model file to a model that is ready."""
