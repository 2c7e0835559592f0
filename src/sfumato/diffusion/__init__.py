"""The method: a learned schedule, the forward process, the loss, the model, its samplers, its bound."""
