"""The method: learned schedule, forward process, loss, model, samplers and bound."""
