"""The hallucination audit."""
