"""Turn files or simulations into samples of (condition, target), with one module per problem of the paper."""
